"""SPRC: what is said of it."""

from __future__ import annotations

from typing import Any

from triptych.methods.config import About, Difference

PRESETS: dict[str, dict[str, Any]] = {"released": {"temperature_floor": 0.0}}

SPRC = About(
    idea="Turn reference and text into a prompt: the fused query tokens are read once more, before the text, without "
    "the picture, and the text's first position is the query. A learned prompt before the text alone must find the "
    "target too, and the fused tokens are kept near it. It trusts every annotation.",
    sources="SPRC (ICLR 2024); specification, section 4",
    differences=(
        Difference("weights", "-", "0.4 and 0.4 on CIRR; on FashionIQ the arguments are ignored: 1 and 1",
                   "1 and 1 (switches w_rtc, w_al; set 0.4 for CIRR)"),
        Difference("gradient of L_align", "-", "only into the fused tokens; the prompt learns from L_rtc", "the same"),
        Difference("learned temperature", "-", "not clamped", "used from 0.01 up, since at the rates of a small "
                   "backbone it could cross zero, which turns the loss round (switch temperature_floor)"),
        Difference("schedule on CIRR", "50 epochs", "50 epochs of a cycle of 80, which never anneals to its end",
                   "of the training, not of the method: training.horizon_epochs = 80 with epochs = 50"),
        Difference("start of the cycle", "-", "1/100 of the peak on FashionIQ, 1/25 on CIRR", "1/100"),
        Difference("under noise", "-", "trained unchanged on noisy triplets", "the same"),
    ),
)  # fmt: skip
