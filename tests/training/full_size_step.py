"""Two training steps of intent on full-size BLIP-2 with random weights; prints bytes above what Python itself took.

A script of its own, so that nothing else is in the process. Linux only.
"""

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from triptych.backbones.registry import create_backbone
from triptych.methods.base import TripletBatch
from triptych.methods.registry import create as create_method


def status(name: str) -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def main(settings: dict[str, Any]) -> None:
    import transformers.models.blip_2.modeling_blip_2
    import transformers.models.clip.modeling_clip  # noqa: F401

    def said(what: str) -> None:
        taken = (status("VmRSS") - before) / 1e9
        print(f"{time.perf_counter() - began:4.0f} s: {what}, {taken:.2f} GB", file=sys.stderr, flush=True)

    size, began = 2, time.perf_counter()
    before = status("VmRSS")
    backbone = create_backbone({"name": "blip2", "weights": None, **settings})
    said("built")
    method = create_method("intent", {}, backbone.shape)
    side = backbone.shape.image_size
    reference, target = torch.rand(2, size, 3, side, side)
    one = backbone.encode_images(reference[:1])
    texts = (
        "make it red " * 16,
        "without stripes " * 16,
    )  # as long as texts can be, which the plan reckons with
    vector = backbone.eval().compose(one, texts[:1]).vector
    assert vector.shape == (1, backbone.shape.dim)
    assert abs(float(vector.detach().norm()) - 1) < 1e-5
    said("one picture and one query embedded")
    del one, vector
    batch = TripletBatch(
        triplet_ids=("a", "b"),
        texts=texts,
        reference_tokens=backbone.encode_images(reference),
        target_tokens=backbone.encode_images(target),
        generator=torch.Generator().manual_seed(0),
        reference_pixels=reference,
        target_pixels=target,
    )
    parameters = [p for p in (*backbone.parameters(), *method.parameters()) if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-5)
    backbone.train()
    method.train()
    peaks, losses = [], []
    for step in range(2):
        forget_peak()
        loss = method.losses(dataclasses.replace(batch, step=step), backbone).total()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        peaks.append(status("VmHWM") - before)
        said(f"step {step + 1}, at most {peaks[-1] / 1e9:.2f} GB")
    print(json.dumps({"peaks": peaks, "losses": losses, "before": before}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})
