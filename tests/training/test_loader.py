"""Batches: drawn by name, so that any epoch and step can be made again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from triptych.backbones.token_cache import TokenCache
from triptych.errors import UsageError
from triptych.methods.base import TripletBatch
from triptych.training.loader import TripletLoader
from triptych.triplets import Benchmark
from triptych.triplets.text import join_captions

NOTHING: frozenset[Any] = frozenset()


@pytest.fixture
def make(bench: Benchmark, pristine: Any) -> Callable[..., TripletLoader]:
    cache = TokenCache(pristine)
    keys = cache.add_images(bench.images, bench.train.image_ids(), pristine)

    def build(**changes: Any) -> TripletLoader:
        settings = {"batch_size": 8, "captions": "fixed", "seed": 0, **changes}
        table = settings.pop("table", bench.train)
        return TripletLoader(table, cache, keys, bench.images, pristine, **settings)

    return build


def batches(loader: TripletLoader, epoch: int, first: int = 0, needs: Any = NOTHING) -> list[TripletBatch]:
    return list(loader.epoch(epoch, first, needs))


def ids(loader: TripletLoader, epoch: int) -> list[tuple[str, ...]]:
    return [batch.triplet_ids for batch in batches(loader, epoch)]


def test_the_same_seed_gives_the_same_batches(make: Callable[..., TripletLoader]) -> None:
    first, second = batches(make(), 3), batches(make(), 3)
    assert len(first) == 5
    for a, b in zip(first, second, strict=True):
        assert (a.triplet_ids, a.texts) == (b.triplet_ids, b.texts)
        assert torch.equal(a.reference_tokens, b.reference_tokens)
        assert torch.equal(a.target_tokens, b.target_tokens)
        assert torch.rand(1, generator=a.generator) == torch.rand(1, generator=b.generator)
    assert ids(make(seed=1), 3) != ids(make(), 3)
    assert ids(make(), 4) != ids(make(), 3)


def test_an_epoch_can_start_at_any_step(make: Callable[..., TripletLoader]) -> None:
    whole, rest = batches(make(captions="random4"), 1), batches(make(captions="random4"), 1, first=3)
    assert [batch.triplet_ids for batch in whole[3:]] == [batch.triplet_ids for batch in rest]
    assert [batch.texts for batch in whole[3:]] == [batch.texts for batch in rest]
    assert whole[3].generator.get_state().equal(rest[0].generator.get_state())
    assert batches(make(), 1, first=5) == []


def test_each_triplet_at_most_once_and_the_rest_dropped(
    make: Callable[..., TripletLoader], bench: Benchmark
) -> None:
    """40 triplets in batches of 12: three batches, four triplets left out, others each epoch."""
    loader = make(batch_size=12)
    assert loader.steps_per_epoch == 3
    left_out = []
    for epoch in range(3):
        used = [name for batch in ids(loader, epoch) for name in batch]
        assert len(used) == len(set(used)) == 36
        left_out.append(frozenset(bench.train.triplet_ids) - set(used))
    assert len(set(left_out)) == 3


def test_rows_belong_together(make: Callable[..., TripletLoader], bench: Benchmark, pristine: Any) -> None:
    """Text, reference and target tokens of a row are those of its triplet."""
    batch = batches(make(), 0)[2]
    for row, name in enumerate(batch.triplet_ids):
        triplet = bench.train[bench.train.row_of(name)]
        assert batch.texts[row] == join_captions(triplet.captions)
        for tokens, image in (
            (batch.reference_tokens, triplet.reference),
            (batch.target_tokens, triplet.target),
        ):
            pixels = torch.from_numpy(pristine.preprocess(bench.images.load(str(image))))[None]
            assert torch.equal(tokens[row], pristine.encode_images(pixels)[0].half().float())


def test_random4_uses_all_four_joins(make: Callable[..., TripletLoader], bench: Benchmark) -> None:
    """A triplet's text changes from epoch to epoch, and does not depend on its place in the batch."""
    loader = make(captions="random4")
    name = bench.train.triplet_ids[7]
    first, second = (caption.strip() for caption in bench.train[7].captions)
    seen = {}
    for epoch in range(30):
        texts = loader.texts(epoch)
        found = {
            name: text
            for batch in batches(loader, epoch)[:2]
            for name, text in zip(batch.triplet_ids, batch.texts, strict=True)
        }
        assert all(texts[bench.train.row_of(name)] == text for name, text in found.items())
        seen[texts[7]] = epoch
    assert set(seen) == {f"{first} and {second}", f"{second} and {first}", first, second}
    assert make(captions="random4", batch_size=40).texts(2) == loader.texts(2)
    assert name in bench.train


def test_fixed_captions_never_change(make: Callable[..., TripletLoader], bench: Benchmark) -> None:
    assert make().texts(0) == make().texts(5) == [join_captions(t.captions) for t in bench.train]


def test_a_batch_larger_than_the_data(make: Callable[..., TripletLoader]) -> None:
    with pytest.raises(UsageError, match="a batch of 41 is larger than the data \\(40 training triplets\\)"):
        make(batch_size=41)
    assert make(batch_size=40).steps_per_epoch == 1


def test_pixels_where_a_method_asks(
    make: Callable[..., TripletLoader], bench: Benchmark, pristine: Any
) -> None:
    without, batch = batches(make(), 0)[0], batches(make(), 0, needs=frozenset({"pixels"}))[0]
    assert without.reference_pixels is None
    assert without.target_pixels is None
    assert batch.reference_pixels is not None
    assert batch.target_pixels is not None
    assert batch.reference_pixels.shape == batch.target_pixels.shape == (8, 3, 64, 64)
    for row, name in enumerate(batch.triplet_ids):
        triplet = bench.train[bench.train.row_of(name)]
        expected = pristine.preprocess(bench.images.load(str(triplet.target)))
        np.testing.assert_array_equal(batch.target_pixels[row].numpy(), expected)
        expected = pristine.preprocess(bench.images.load(triplet.reference))
        np.testing.assert_array_equal(batch.reference_pixels[row].numpy(), expected)


def test_counterfactuals_where_a_method_asks(make: Callable[..., TripletLoader]) -> None:
    """One of each reference's variants, drawn by epoch and step."""
    plain = make()
    variants = {
        name: np.array([row, row + 1, row + 2, row + 3])
        for row, name in enumerate(plain.table.column("reference"))
    }
    loader = make(bank_rows=variants.__getitem__)
    loader.cache = Recording()
    needs = frozenset({"counterfactuals"})
    batch = next(loader.epoch(0, 0, needs))
    assert batch.counterfactual_tokens is not None
    drawn = batch.counterfactual_tokens[:, 0, 0].int().tolist()
    table = plain.table
    references = [table[table.row_of(name)].reference for name in batch.triplet_ids]
    offsets = [row - int(variants[name][0]) for row, name in zip(drawn, references, strict=True)]
    assert set(offsets) <= {0, 1, 2, 3}
    assert len(set(offsets)) > 1
    again = next(loader.epoch(0, 0, needs)).counterfactual_tokens
    assert again is not None
    assert torch.equal(again, batch.counterfactual_tokens)


class Recording:
    """Stands for a cache: the token of a row is its number."""

    def gather(self, rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(rows.astype(np.float32))[:, None, None]


def test_the_fingerprint_is_of_triplets_and_pictures(
    make: Callable[..., TripletLoader], bench: Benchmark, pristine: Any, tmp_path: Path
) -> None:
    loader = make()
    assert make(seed=5, batch_size=4).fingerprint == loader.fingerprint
    assert make(table=bench.train.take(range(39))).fingerprint != loader.fingerprint
    keys = {name: b"0" * 32 for name in bench.train.image_ids()}
    other = TripletLoader(
        bench.train, Rows(), keys, bench.images, pristine, batch_size=8, captions="fixed", seed=0
    )
    assert other.fingerprint != loader.fingerprint


class Rows:
    def rows(self, keys: list[bytes]) -> np.ndarray:
        return np.zeros(len(keys), dtype=np.int64)


def test_scoring_visits_every_triplet_once(make: Callable[..., TripletLoader], bench: Benchmark) -> None:
    scored = list(make().scoring(2))
    assert sorted(name for batch in scored for name in batch.triplet_ids) == sorted(bench.train.triplet_ids)
    assert len(scored[-1]) == len(bench.train) % 8 or 8
    assert [b.triplet_ids for b in make().scoring(2)] == [b.triplet_ids for b in scored]
    assert [b.triplet_ids for b in make().scoring(3)] != [b.triplet_ids for b in scored]


def test_fixed_batches_keep_their_triplets(make: Callable[..., TripletLoader]) -> None:
    loader = make(fixed_batches=True)
    first, later = ids(loader, 0), ids(loader, 5)
    assert sorted(first) == sorted(later)
    assert first != later
    assert sorted(first) != sorted(ids(make(), 0))
