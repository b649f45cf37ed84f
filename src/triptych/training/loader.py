"""Triplets to batches: which rows, which words, which tokens, each drawn by name so that a resumed run repeats it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from triptych.backbones.base import Backbone
from triptych.backbones.token_cache import TokenCache
from triptych.errors import UsageError
from triptych.methods.base import CaptionMode, Needs, TripletBatch
from triptych.randomness import generator, torch_generator
from triptych.triplets import ImageStore, TripletTable
from triptych.triplets.text import join_captions

BankRows = Callable[[str], np.ndarray]


class TripletLoader:
    """Gives the batches of any epoch and step.

    Attributes:
        steps_per_epoch: whole batches of an epoch.
        fingerprint: SHA-256 of the triplets and the bytes of their pictures.

    Args:
        table: the training triplets, noise applied.
        cache: holds the tokens of all their images.
        keys: image id to cache key.
        images: the pictures, for methods that need pixels.
        backbone: preprocesses those.
        batch_size: triplets a step; the rest of an epoch is dropped.
        captions: how captions are joined.
        seed: the run's seed.
        bank_rows: per reference id the cache rows of its counterfactuals, for methods that need them.
        fixed_batches: shuffle the triplets into batches once; later epochs shuffle the batches.
        table_of: the triplets of an epoch, where they change (a noise curriculum): the same ids in the same order.

    Raises:
        UsageError: the batch is larger than the data.
    """

    def __init__(
        self,
        table: TripletTable,
        cache: TokenCache,
        keys: Mapping[str, bytes],
        images: ImageStore,
        backbone: Backbone,
        *,
        batch_size: int,
        captions: CaptionMode,
        seed: int,
        bank_rows: BankRows | None = None,
        fixed_batches: bool = False,
        table_of: Callable[[int], TripletTable] | None = None,
    ) -> None:
        if batch_size > len(table):
            raise UsageError(
                f"a batch of {batch_size} is larger than the data ({len(table)} training triplets).\n"
                f"  Use --batch-size {max(2, len(table))} or less."
            )
        self.table, self.cache, self.images, self.backbone = table, cache, images, backbone
        self.batch_size, self.captions, self.seed, self.bank_rows = batch_size, captions, seed, bank_rows
        self.fixed_batches = fixed_batches
        self.steps_per_epoch = len(table) // batch_size
        self.fingerprint = _fingerprint(table, keys)
        self._ids = table.triplet_ids
        self._table_of = table_of or (lambda epoch: table)
        self._columns = lru_cache(maxsize=2)(lambda table: _Columns(table, cache, keys))

    def order(self, epoch: int) -> np.ndarray:
        """Return the epoch's order of all rows."""
        if not self.fixed_batches:
            return epoch_order(self.seed, epoch, len(self._ids))
        once = generator(self.seed, "order").permutation(len(self._ids))
        whole = self.steps_per_epoch * self.batch_size
        batches = once[:whole].reshape(self.steps_per_epoch, self.batch_size)
        shuffled = batches[generator(self.seed, "order", epoch).permutation(self.steps_per_epoch)]
        return np.concatenate([shuffled.reshape(-1), once[whole:]])

    def texts(self, epoch: int) -> list[str]:
        """Return the epoch's text of every row."""
        captions_of = self._of(epoch).captions
        return [
            join_captions(captions, self.captions, self._caption_generator(epoch, triplet_id))
            for triplet_id, captions in zip(self._ids, captions_of, strict=True)
        ]

    def epoch(self, epoch: int, first_step: int, needs: frozenset[Needs]) -> Iterator[TripletBatch]:
        """Yield the batches of an epoch from a step on, the next one prepared while the present one is used."""
        order = self.order(epoch)
        with ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(self._batch, order, epoch, first_step, needs)
            for step in range(first_step, self.steps_per_epoch):
                batch = ahead.result()
                if step + 1 < self.steps_per_epoch:
                    ahead = pool.submit(self._batch, order, epoch, step + 1, needs)
                yield batch

    def scoring(self, epoch: int) -> Iterator[TripletBatch]:
        """Yield every triplet once, in batches of a random order of their own; the last one may be short."""
        order = generator(self.seed, "scoring", epoch).permutation(len(self._ids))
        for step in range(-(-len(order) // self.batch_size)):
            yield self._batch(order, epoch, step, frozenset())

    def _batch(self, order: np.ndarray, epoch: int, step: int, needs: frozenset[Needs]) -> TripletBatch:
        rows = order[step * self.batch_size : (step + 1) * self.batch_size]
        draws = torch_generator(self.seed, "method", epoch, step)
        device = self.backbone.device
        pixels, columns = "pixels" in needs, self._of(epoch)
        return TripletBatch(
            triplet_ids=tuple(self._ids[row] for row in rows),
            texts=tuple(
                join_captions(
                    columns.captions[row], self.captions, self._caption_generator(epoch, self._ids[row])
                )
                for row in rows
            ),
            reference_tokens=self.cache.gather(columns.reference_rows[rows]).to(device),
            target_tokens=self.cache.gather(columns.target_rows[rows]).to(device),
            generator=draws,
            reference_pixels=self._pixels([columns.references[row] for row in rows]) if pixels else None,
            target_pixels=self._pixels([columns.targets[row] for row in rows]) if pixels else None,
            counterfactual_tokens=self._counterfactuals([columns.references[row] for row in rows], draws).to(
                device
            )
            if "counterfactuals" in needs
            else None,
            step=step,
        )

    def _pixels(self, image_ids: list[str]) -> Tensor:
        distinct = sorted(set(image_ids))
        loaded = {name: self.backbone.preprocess(self.images.load(name)) for name in distinct}
        return torch.from_numpy(np.stack([loaded[name] for name in image_ids])).to(self.backbone.device)

    def _counterfactuals(self, references: list[str], draws: torch.Generator) -> Tensor:
        assert self.bank_rows is not None, "the method needs counterfactuals, but no bank was built"
        banks = np.stack([self.bank_rows(name) for name in references])  # [B, k]
        chosen = torch.randint(banks.shape[1], (len(banks),), generator=draws).numpy()
        return self.cache.gather(banks[np.arange(len(banks)), chosen])

    def _of(self, epoch: int) -> _Columns:
        return self._columns(self._table_of(epoch))

    def _caption_generator(self, epoch: int, triplet_id: str) -> np.random.Generator | None:
        return None if self.captions == "fixed" else generator(self.seed, "captions", epoch, triplet_id)


def epoch_order(seed: int, epoch: int, count: int) -> np.ndarray:
    """Return the order of ``count`` rows in an epoch, counted from 0: each batch takes the next ones."""
    return generator(seed, "order", epoch).permutation(count)


class _Columns:
    """What a table says of each row, and where the tokens of its images are."""

    def __init__(self, table: TripletTable, cache: TokenCache, keys: Mapping[str, bytes]) -> None:
        self.captions = table.column("captions")
        self.references, self.targets = table.column("reference"), table.column("target")
        self.reference_rows = cache.rows([keys[image] for image in self.references])
        self.target_rows = cache.rows([keys[image] for image in self.targets])


def _fingerprint(table: TripletTable, keys: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(table.fingerprint().encode())
    for image in sorted(table.image_ids()):
        digest.update(keys[image])
    return digest.hexdigest()
