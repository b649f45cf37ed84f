"""A finished run as figures ask it: embeddings of pictures and queries, what it remembers, what it is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from triptych.backbones.token_cache import Progress, TokenCache
from triptych.errors import UsageError
from triptych.methods.conesep import ConeSep
from triptych.noise import NoiseManifest
from triptych.training.model import Model
from triptych.training.run import Run
from triptych.training.source import open_model
from triptych.triplets import Benchmark

_CHUNK = 256


@dataclass(frozen=True)
class OpenedRun:
    """A model on the pictures of a data set.

    Attributes:
        folder: of the run or model.
        name: the folder's name.
        model: in eval mode.
        benchmark: the data.
        cache: holds the tokens of its pictures.
        progress: called with (done, total) while tokens are computed.
    """

    folder: Path
    name: str
    model: Model
    benchmark: Benchmark
    cache: TokenCache
    progress: Progress | None = None

    @classmethod
    def open(
        cls,
        folder: Path,
        benchmark: Benchmark,
        *,
        checkpoint: str = "best",
        cache: Path | None = None,
        progress: Progress | None = None,
    ) -> OpenedRun:
        """Open a run or a model folder.

        Raises:
            UsageError: there is nothing at the path.
            DataError: there is no model of that checkpoint.
        """
        opened = open_model(folder, checkpoint=checkpoint)
        tokens = TokenCache(opened.model.backbone, cache)
        return cls(folder, opened.name, opened.model, benchmark, tokens, progress)

    @property
    def method(self) -> str:
        """The method's name."""
        return self.model.method.name if self.model.method is not None else "aligned only"

    def conesep(self, what: str) -> ConeSep:
        """Return the method where it composes negative queries.

        Raises:
            UsageError: it does not; says what to run.
        """
        if isinstance(self.model.method, ConeSep):
            return self.model.method
        raise UsageError(
            f"{self.folder}: {what} needs the negative query of ConeSep, and this run was trained with"
            f" {self.method}.\n  Train one: triptych train --data {self.benchmark.path} --method conesep -o RUN"
        )

    def tokens(self, image_ids: Sequence[str]) -> Tensor:
        """Return frozen tokens ``[N, P, V]``; what the cache lacks is computed."""
        wanted = sorted(set(image_ids))
        keys = self.cache.add_images(self.benchmark.images, wanted, self.model.backbone, self.progress)
        rows = self.cache.rows([keys[name] for name in image_ids])
        return self.cache.gather(rows).to(self.model.backbone.device)

    def targets(self, image_ids: Sequence[str]) -> Tensor:
        """Embed pictures as targets, ``[N, Q, D]`` float32 on the CPU."""
        return self._embed(image_ids, lambda tokens, rows: self.model.embed_targets(tokens))

    def queries(self, references: Sequence[str], texts: Sequence[str]) -> Tensor:
        """Embed queries, ``[N, D]`` unit rows, float32 on the CPU."""
        return self._embed(
            references, lambda tokens, rows: self.model.embed_queries(tokens, [texts[at] for at in rows])
        )

    def negatives(self, references: Sequence[str], texts: Sequence[str], what: str) -> Tensor:
        """Embed the negative queries of ConeSep, one fixed negation before every text: ``[N, D]`` unit rows.

        Raises:
            UsageError: the method is another one; ``what`` says what needs them.
        """
        method, backbone = self.conesep(what), self.model.backbone
        return self._embed(
            references,
            lambda tokens, rows: method.negative_query(tokens, [texts[at] for at in rows], backbone),
        )

    @torch.inference_mode()
    def _embed(self, image_ids: Sequence[str], embed: Callable[[Tensor, range], Tensor]) -> Tensor:
        wanted = sorted(set(image_ids))
        self.cache.add_images(self.benchmark.images, wanted, self.model.backbone, self.progress)
        chunks = [
            range(start, min(start + _CHUNK, len(image_ids))) for start in range(0, len(image_ids), _CHUNK)
        ]
        return torch.cat(
            [embed(self.tokens([image_ids[at] for at in rows]), rows).float().cpu() for rows in chunks]
        )


def noise_of(folder: Path, benchmark: Benchmark | None = None) -> NoiseManifest:
    """Read the noise manifest of a run: which of its triplets are wrong.

    Raises:
        UsageError: it was trained without one.
    """
    run, config = Run.open(folder)
    if not config.noise or not run.noise.is_file():
        raise UsageError(
            f"{folder} was trained without a noise manifest, so it is not known which triplets are wrong.\n"
            "  Make one with `triptych noise inject DATA -o FILE` and train with --noise FILE."
        )
    return NoiseManifest.read(run.noise, benchmark.train if benchmark is not None else None)
