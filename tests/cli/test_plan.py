"""``triptych plan`` on a small BLIP-2 without weights."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SIZES = (
    '{"image_size": 28, "image_width": 16, "vision_layers": 2, "vision_heads": 2, "vision_intermediate": 32, '
    '"queries": 4, "hidden": 24, "layers": 2, "heads": 2, "intermediate": 48, "vocabulary": 99, "dim": 8}'
)
TINY = ["--backbone", "blip2", "--set", f"backbone.sizes={SIZES}"]


def test_json(triptych: Callable[..., Any], tiny_benchmark: Path) -> None:
    done = triptych(
        "plan", *TINY, "--batch-size", 8, "--flops", 1e9, "--data", tiny_benchmark, "--bank", 4, "--json"
    )
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert facts["data"] == {"triplets": 40, "images": 48, "references": 20}
    entry = 5 * 16 * 2 + 44
    assert facts["token_bytes"]["float16"] == entry
    assert facts["cache_bytes"]["float16"] == entry * (48 + 4 * 20)
    assert facts["epoch_seconds"] == pytest.approx(5 * facts["step_flops"] / 1e9)
    assert facts["memory"]["total"] > 0
    assert facts["fits"] is None
    assert not facts["measured"]


def test_what_to_change(triptych: Callable[..., Any]) -> None:
    facts = json.loads(triptych("plan", *TINY, "--flops", 1e9, "--json", "--memory", "1TB").out)
    assert facts["fits"] is True
    short = triptych("plan", *TINY, "--flops", 1e9, "--memory", f"{facts['memory']['total'] * 0.9:.0f}")
    assert short.code == 0
    assert "does not fit" in short.out
    assert "bf16" in short.out
    assert "module hooks" in short.out
    none = triptych("plan", *TINY, "--flops", 1e9, "--memory", "10kB")
    assert "still does not fit" in none.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--memory", "a lot"), "24GB"),
        (("--precision", "fp8"), "no, bf16, fp16"),
        (("--device", "tpu"), "cuda, cpu"),
        (("--flops", "0"), "above 0"),
        (("--method", "intend"), "intent"),
        (("--backbone", "clip", "--method", "intent"), "Q-Former"),
    ],
)
def test_wrong_usage(triptych: Callable[..., Any], arguments: tuple[str, ...], said: str) -> None:
    refused = triptych("plan", *arguments)
    assert refused.code == 2
    assert said in refused.said
