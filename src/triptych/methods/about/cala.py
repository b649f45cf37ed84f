"""CALA: what is said of it."""

from __future__ import annotations

from typing import Any

from triptych.methods.config import About, Difference

PRESETS: dict[str, dict[str, Any]] = {
    "released": {"unmasked": True},
    "paper": {"unmasked": False},  # its sums run over the words of a text, and padding is no word
}

CALA = About(
    idea="Use more of a triplet than query and target: the text should say what differs between reference and target "
    "(twin attention gives the visual gap, added to the logits of matching), and from the reference one should "
    "arrive at the target over the text as a hinge (a pseudo-target that must find its own reference again). "
    "Ranking uses the matching alone.",
    sources="CALA (SIGIR 2024); specification, section 5",
    differences=(
        Difference("backbone", "three feature extractors with ViT-L: text, image, both", "the same", "one shared "
                   "backbone, so 1/3 of the weights, and one query token must serve as r0, t0 and the visual tokens "
                   "alike: published figures are not to be expected (switch backbone, for now with this one value)"),
        Difference("on lite", "BLIP-2, hidden width 768", "the same", "two small Q-Former layers, H = 192, on frozen "
                   "EfficientNet-Lite0 and MiniLM; queries and targets are H wide, as the method has no projections, "
                   "so those of the backbone (also of an aligned start) are not used"),
        Difference("padded text in the hinge", "not stated", "takes part", "its columns are zeroed (switch unmasked)"),
        Difference("scoring by ARTEMIS", "-", "a variant (cala_frame = artemis)", "the sum only: the specification "
                   "names the variant and does not define it"),
        Difference("learning rate", "-", "5e-6, twice that for the two modules", "the backbone's own for lite, twice "
                   "that for the two modules (switch attention_rate)"),
        Difference("schedule", "-", "cosine over 15 of 30 epochs for the multimodal Q-Former alone, then rising "
                   "again; the others constant", "one cosine over the run for all, down to 1 % and never up"),
        Difference("temperature arguments", "-", "two, never used", "the scales 100 and 10 as switches temperature "
                   "and association_temperature"),
        Difference("second half of the hinge's layers", "-", "four layers, never called", "left out"),
    ),
)  # fmt: skip
