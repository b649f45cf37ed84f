"""BLIP-2 at its full size, with random weights: one picture, one query, one training step, and its memory."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from triptych.backbones.preprocessing import CLIP_MEAN, CLIP_STD
from triptych.backbones.registry import create_backbone
from triptych.methods import registry as methods
from triptych.methods.base import TripletBatch

GIB = 2**30
NEEDED = 11 * GIB
"""The tower in float32 (4 GiB); for what is trained four such values a weight (3 GiB); and activations, with room."""


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


def available() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))


@contextmanager
def said(what: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - began:.0f} s, peak {peak_gib():.2f} GiB", flush=True)


@torch.no_grad()
def fill(tensor: torch.Tensor) -> None:
    """Draw 2^20 values in +-0.03 and repeat them: the start decides nothing here, and this takes seconds."""
    block = torch.rand(min(tensor.numel(), 2**20) + 7).mul_(0.06).sub_(0.03)
    flat = tensor.view(-1)
    for start in range(0, flat.numel(), len(block)):
        part = flat[start : start + len(block)]
        part.copy_(block[: len(part)])


def full_size() -> Any:
    with torch.device("meta"):
        backbone: Any = create_backbone({"name": "blip2", "weights": None, "tower_precision": "float32"})
    backbone.to_empty(device="cpu")
    for module in backbone.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.reset_parameters()
        else:
            for value in module.parameters(recurse=False):
                fill(value)
    backbone.register_buffer("pixel_mean", torch.tensor(CLIP_MEAN), persistent=False)
    backbone.register_buffer("pixel_std", torch.tensor(CLIP_STD), persistent=False)
    return backbone


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_one_step_at_full_size(capsys: pytest.CaptureFixture[str]) -> None:
    if available() < NEEDED:
        pytest.skip(f"needs {NEEDED / GIB:.0f} GiB of memory, {available() / GIB:.1f} are free")
    with capsys.disabled():
        began = peak_gib()
        print(f"\nbefore: peak {began:.2f} GiB", flush=True)
        with said("built"):
            backbone = full_size()
        trained = [value for value in backbone.parameters() if value.requires_grad]
        total = sum(value.numel() for value in backbone.parameters())
        learned = sum(value.numel() for value in trained)
        print(f"{total / 1e6:.1f} M parameters, {learned / 1e6:.1f} M of them trained", flush=True)
        assert total == pytest.approx(1_172e6, rel=2e-3)
        pixels = torch.rand(3, 3, 224, 224, generator=torch.Generator().manual_seed(0))
        with said("three pictures encoded"):
            tokens = backbone.encode_images(pixels)
        assert tokens.shape == (3, 257, 1408)
        assert tokens.isfinite().all()
        with said("one query composed"), torch.inference_mode():
            query = backbone.eval().compose(tokens[:1], ["the same dress in red with long sleeves"])
        assert query.vector.shape == (1, 256)
        assert float(query.vector.norm()) == pytest.approx(1, abs=1e-4)
        method = methods.create("intent", {}, backbone.shape)
        optimizer = torch.optim.AdamW([*trained, *method.parameters()], lr=1e-5, betas=(0.9, 0.98), eps=1e-7)
        before = backbone.query_tokens.detach().clone()
        batch = TripletBatch(
            triplet_ids=("a", "b"),
            texts=("is red", "has longer sleeves and is blue"),
            reference_tokens=tokens[:2],
            target_tokens=tokens[1:],
            generator=torch.Generator(),
            reference_pixels=pixels[:2],
            target_pixels=pixels[1:],
        )
        with said("one training step of intent, batch 2"):
            backbone.train()
            loss = method.losses(batch, backbone).total()
            loss.backward()
            optimizer.step()
        assert torch.isfinite(loss)
        assert not torch.equal(before, backbone.query_tokens)
        print(f"loss {float(loss):.3f}; peak memory {peak_gib():.2f} GiB", flush=True)
