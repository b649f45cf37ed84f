import pytest
import torch
from torch.testing import assert_close

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods.base import Losses, Method
from triptych.methods.config import MethodConfig


def test_terms_are_weighted_means_and_figures_are_no_terms() -> None:
    losses = Losses(robust=torch.tensor([1.0, 3.0]))
    losses.add(soft=torch.tensor([2.0, 2.0]), weight=0.5)
    figures = torch.tensor([0.2, 0.4], requires_grad=True)
    losses.observe(p_positive=figures)
    assert_close(losses.total(), torch.tensor(3.0))
    assert len(losses) == 2
    assert "p_positive" not in losses
    mean = losses.diagnostics["p_positive"]
    assert isinstance(mean, torch.Tensor)
    assert not mean.requires_grad
    assert mean.item() == pytest.approx(0.3)


def test_a_plain_method_has_no_bank_and_makes_no_counterfactuals(
    backbone: Backbone, shape: BackboneShape
) -> None:
    method = Method(MethodConfig(), shape)
    assert method.counterfactual_bank == 0
    assert method.needs(0) == frozenset()
    pixels = torch.zeros(1, 3, 16, 16)
    with pytest.raises(NotImplementedError):
        method.counterfactual(pixels, pixels, backbone, torch.Generator())
