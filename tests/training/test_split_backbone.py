"""A batch in parts, over processes and over micro-batches, is the batch."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from triptych.backbones.base import Backbone
from triptych.training.processes import Processes
from triptych.training.split_backbone import SplitBackbone

DRIVER = Path(__file__).with_name("shares.py")


def _shares() -> Any:
    spec = importlib.util.spec_from_file_location("shares", DRIVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["shares"] = module
    spec.loader.exec_module(module)
    return module


shares = _shares()


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=1e-9, atol=1e-12, msg=lambda said, n=name: f"{n}: {said}"
        )


@pytest.fixture(scope="module")
def whole() -> Callable[[str], dict[str, Tensor]]:
    """What a method's steps give on whole batches, in one process."""
    return lambda name: shares.trace(name, Processes(), None)


def test_two_processes_in_micro_batches_are_one(
    whole: Callable[[str], dict[str, Tensor]], tmp_path: Path
) -> None:
    """Losses, gradients, trust and memory of all methods: 5 triplets as 2 + 1 and 2."""
    out = tmp_path / "shares.safetensors"
    done = subprocess.run(
        [sys.executable, str(DRIVER), "2", str(out), "2"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = load_file(out)
    assert_same({"lone": found.pop("lone")}, {"lone": shares.lone(shares.tiny.TinyBackbone())})
    dropped = {name: found.pop(name) for name in list(found) if name.startswith("dropout/")}
    for name in shares.CASES:
        assert_same({k: v for k, v in found.items() if k.startswith(f"{name}/")}, whole(name))
    alone = shares.trace("infonce", Processes(), 2, size=8, dropout=0.3)
    assert_same(dropped, {f"dropout/{name}": value for name, value in alone.items()})


@pytest.mark.parametrize("micro_batch", [1, 3, 100])
def test_micro_batches_of_any_size(whole: Callable[[str], dict[str, Tensor]], micro_batch: int) -> None:
    assert_same(shares.trace("sprc", Processes(), micro_batch), whole("sprc"))


def steps(dropout: float, micro_batch: int | None) -> tuple[Any, Callable[[], Tensor]]:
    """Make a backbone with dropout, and a loss of a step of it; each call is the same step."""
    backbone = shares.tiny.TinyBackbone().double()
    for module in backbone.qformer.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
    passes = SplitBackbone(backbone, Processes(), micro_batch).train()
    batch = shares.batch(backbone, 0, 0, 5)

    def loss() -> Tensor:
        torch.manual_seed(7)
        passes.begin_step()
        composed = passes.compose(batch.reference_tokens, batch.texts)
        targets = passes.targets(batch.target_tokens)
        return (composed.vector @ targets.flatten(0, 1).T).exp().sum().log() + composed.tokens.pow(3).sum()

    return backbone, loss


def test_dropout_is_the_same_in_both_passes() -> None:
    """Else the gradient would not be the slope of the loss."""
    backbone, loss = steps(0.4, 2)
    assert loss() == loss()
    assert loss() != steps(0.4, None)[1]()
    loss().backward()
    value = backbone.qformer.encoder.layer[0].output_query.dense.weight
    direction = torch.randn(value.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    slope = (value.grad * direction).sum()
    step = 1e-6
    with torch.no_grad():
        value += step * direction
        above = loss()
        value -= 2 * step * direction
        below = loss()
    assert (above - below) / (2 * step) == pytest.approx(float(slope), rel=1e-5)
    assert abs(slope) > 1e-3


def test_passes_of_a_step_drop_differently_and_leave_the_generator_alone() -> None:
    backbone = shares.tiny.TinyBackbone()
    passes = SplitBackbone(backbone, Processes(), 2).train()
    for module in backbone.qformer.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    tokens = torch.randn(1, 4, 12).expand(6, -1, -1)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        expected = torch.rand(4)
        torch.manual_seed(3)
        first, second = passes.look(tokens), passes.look(tokens)
        assert torch.equal(torch.rand(4), expected)
        torch.manual_seed(3)
        passes.begin_step()
        assert torch.equal(passes.look(tokens), first)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[2])  # each micro-batch has its own


def test_activations_are_not_kept() -> None:
    """What the first pass keeps for the gradient is not what the Q-Former computed."""
    alive, most = [0], [0]

    def pack(tensor: Tensor) -> Tensor:
        alive[0] += tensor.numel()
        most[0] = max(most[0], alive[0])
        return tensor

    def kept(micro_batch: int | None) -> int:
        _, loss = steps(0.0, micro_batch)
        alive[0] = most[0] = 0
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss()
        return most[0]

    assert kept(1) < 0.5 * kept(None)


@given(rows=st.integers(0, 50), count=st.integers(1, 9))
def test_shares_are_the_rows_in_order(rows: int, count: int) -> None:
    found = [row for index in range(count) for row in range(rows)[Processes(index, count).share(rows)]]
    assert found == list(range(rows))
    sizes = [share.stop - share.start for share in (Processes(i, count).share(rows) for i in range(count))]
    assert max(sizes) - min(sizes) <= 1


def test_what_is_no_pass_is_the_backbones() -> None:
    backbone = shares.tiny.TinyBackbone()
    passes = SplitBackbone(backbone, Processes(), 2)
    assert passes.query_tokens is backbone.query_tokens
    assert passes.pixel_mean is backbone.pixel_mean
    assert passes.fingerprint == "tiny"
    assert passes.trained_state().keys() == backbone.trained_state().keys()
    with pytest.raises(AttributeError, match="nothing"):
        _ = passes.nothing


def test_every_pass_is_the_backbones_own() -> None:
    """One that fell back to what every backbone has would give other numbers in parts, as CLIP's pooled ones did."""
    public = {name for name, value in vars(Backbone).items() if callable(value) and not name.startswith("_")}
    assert public >= {"pool_images", "pool_texts", "text_and_states"}
    assert public <= set(vars(SplitBackbone))


class Pooling(shares.tiny.TinyBackbone):  # type: ignore[misc]  # found by its path
    """Pools by a way of its own."""

    def pool_images(self, vision_tokens: Tensor) -> Tensor:
        return 3 * super().pool_images(vision_tokens)

    def pool_texts(self, texts: Any) -> Any:
        vector, hidden, mask = super().pool_texts(texts)
        return 5 * vector, hidden, mask


def test_pooled_embeddings_in_parts() -> None:
    backbone = Pooling().double().eval()
    batch = shares.batch(backbone, 0, 0, 5)
    passes = SplitBackbone(backbone, Processes(), 2).eval()
    tokens = backbone.vision(batch.reference_tokens)
    torch.testing.assert_close(passes.pool_images(tokens), backbone.pool_images(tokens))
    torch.testing.assert_close(passes.pool_texts(batch.texts)[0], backbone.pool_texts(batch.texts)[0])
