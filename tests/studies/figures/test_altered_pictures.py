"""Interventions: what each must keep, whose look is taken, and methods that alter nothing."""

import pytest
import torch

from triptych.errors import UsageError
from triptych.studies.figures.altered_pictures import (
    counterfactuals_of,
    draw_altered,
    five_interventions,
    intervened,
    picture_pairs,
)


def test_what_each_intervention_keeps() -> None:
    draws = torch.Generator().manual_seed(0)
    x, d = torch.rand(2, 1, 3, 56, 56, generator=draws)
    found = five_interventions(x, d, torch.Generator().manual_seed(1))
    assert list(found) == [
        "original",
        "FFT mix (INTENT)",
        "random mask",
        "patch shuffle",
        "Gaussian blur",
        "style transfer",
    ]
    assert torch.equal(found["original"], x)
    for name, altered in found.items():
        assert altered.shape == x.shape
        assert 0 <= altered.min() <= altered.max() <= 1, name
        assert (name == "original") == torch.equal(altered, x)
    torch.testing.assert_close(found["patch shuffle"].sort().values.sum(), x.sort().values.sum())
    kept = (found["random mask"] == x).all(dim=1).float().mean()
    assert 0.5 < kept < 0.9  # cells are blanked with a chance of 0.3
    assert found["Gaussian blur"].std() < x.std()


def test_no_picture_takes_its_own_look() -> None:
    names = [f"p{at}" for at in range(5)]
    for seed in range(20):
        pairs = picture_pairs(names, (), 5, seed)
        assert sorted(reference for reference, _ in pairs) == names
        assert all(reference != other for reference, other in pairs)
    assert picture_pairs(names, ["p3"], 2, 0)[0][0] == "p3"
    assert len(picture_pairs(names, ["p3"], 2, 0)) == 1
    with pytest.raises(UsageError, match='no picture "px"'):
        picture_pairs(names, ["px"], 2, 0)
    with pytest.raises(UsageError, match="two pictures at least"):
        picture_pairs(["p1"], (), 1, 0)


def test_a_row_a_picture(bench) -> None:
    pairs = picture_pairs(bench.train.column("reference"), (), 2, 0)
    altered = intervened(bench.images, pairs, 0)
    assert [(each.image_id, each.irrelevant_id) for each in altered] == pairs
    assert altered[0].panels.shape == (7, 3, 224, 224)
    assert altered[0].change[0] == 0.0
    assert all(change > 0 for change in altered[0].change[1:])
    assert set(altered[0].numbers()) == {"image_id", "irrelevant_id", "names", "change"}
    assert len(draw_altered(altered).axes[0].images) == 14


def test_methods_that_alter_nothing(opened, bench) -> None:
    pairs = picture_pairs(bench.train.column("reference"), (), 1, 0)
    for method, name in ((opened.model.method, "infonce"), (None, "only aligned")):
        with pytest.raises(UsageError, match=rf"{name}.* alters no pictures(?s:.)*Give a run of intent"):
            counterfactuals_of(method, opened.model.backbone, bench.images, pairs, variants=1, seed=0)
