"""Cards of triplets: even steps of trust, the right truth, the noisy values shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import DataError
from triptych.noise import NoiseManifest
from triptych.studies.figures.triplet_cards import draw_trusted_triplets, spread_over_ranks, trusted_triplets
from triptych.training.cleanliness import read_cleanliness


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.integers(1, 6), st.integers(0, 2**20 - 1))
def test_from_the_most_to_the_least_trusted(trust: list[float], count: int, wrong_bits: int) -> None:
    ids = [str(at) for at in range(len(trust))]
    noisy = {name for at, name in enumerate(ids) if wrong_bits >> at & 1}
    value = dict(zip(ids, trust, strict=True))
    clean, wrong = spread_over_ranks(ids, trust, noisy, count)
    for chosen, own in ((clean, set(ids) - noisy), (wrong, noisy)):
        assert len(chosen) == len(set(chosen)) == min(count, len(own))
        assert set(chosen) <= own
        values = [value[name] for name in chosen]
        assert values == sorted(values, reverse=True)
        if chosen:
            assert values[0] == max(value[name] for name in own)
        if len(chosen) > 1:
            assert values[-1] == min(value[name] for name in own)


def test_a_card_shows_what_the_run_saw(tiny_run, bench) -> None:
    manifest = NoiseManifest.read(tiny_run / "noise.json")
    new = {c.triplet_id: c for c in manifest.corruptions}
    shown = trusted_triplets(tiny_run, bench, count=30)
    ids, trust = read_cleanliness(tiny_run / "cleanliness.parquet")
    value = dict(zip(ids, trust, strict=True))
    assert {card.triplet_id for card in shown.wrong} <= manifest.noisy_ids
    assert len(shown.clean) + len(shown.wrong) == len(ids)
    assert shown.measure == "trust"
    for card in shown.wrong:
        corruption = new[card.triplet_id]
        assert card.wrong == corruption.field
        seen = {"reference": card.reference, "target": card.target}.get(corruption.field)
        assert seen in (None, corruption.new)
        assert card.above == pytest.approx(100 * sum(value[card.triplet_id] > trust) / len(ids))
    assert all(card.wrong is None for card in shown.clean)


def test_an_epoch_that_was_not_there(tiny_run, bench) -> None:
    with pytest.raises(DataError, match="there is no epoch 9; it ends with 2"):
        trusted_triplets(tiny_run, bench, epoch=9)


def test_wrong_fields_are_dashed_and_named(tiny_run, bench) -> None:
    shown = trusted_triplets(tiny_run, bench, count=3)
    figure = draw_trusted_triplets(shown, bench.images.load, title="a title")
    words = [text.get_text() for text in figure.axes[0].texts]
    for card in shown.wrong:
        assert f"wrong {card.wrong}" in words
        assert f"{card.trust:.3f}" in words
    dashed = [patch for patch in figure.axes[0].patches if patch.get_linestyle() == "--"]
    assert len(dashed) == sum(card.wrong != "text" for card in shown.wrong)
