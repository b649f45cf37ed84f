"""SSN: what is said of it."""

from __future__ import annotations

from typing import Any

from triptych.methods.config import About, Difference

PRESETS: dict[str, dict[str, Any]] = {
    "released": {"mask_padding": False, "backbone_rate": 0.2},
    "paper": {"mask_padding": True},  # its attention is over the words of a text, and padding is no word
}

SSN = About(
    idea="Read the text as an instruction: first degrade the reference to what stays, then upgrade it to the target. "
    "Gates split the tokens of text and reference into a kept and a removed part; one fusion layer makes the query of "
    "the kept parts and an anti-query of the removed ones, whose ranking must differ from the query's.",
    sources="SSN (AAAI 2024); specification, section 6",
    differences=(
        Difference("backbone", "CLIP ViT-B/32, fine-tuned", "the same", "--backbone clip is the same, but its "
                   "patch embedding stays frozen; any other will do: image tokens of vision(), text tokens "
                   "of the text-only pass, pooled text = text(), pooled image = unit mean of the target vectors; a "
                   "linear layer where text tokens are not D wide"),
        Difference("on lite", "text and image start in one space", "the same", "they do not, unless the run starts "
                   "from an aligned model; D = 128, and the picture has no class token, so the mean of its tokens "
                   "stands first"),
        Difference("pooled embeddings", "-", "CLIP's", "as CLIP gives them, not normalised; of other "
                   "backbones unit rows, so the fused part, 0.01 of the sum, weighs more"),
        Difference("padded text in the fusion", "not stated", "takes part", "masked: a query must not depend on what "
                   "it is embedded with; targets never do, as they have no text (switch mask_padding)"),
        Difference("kl_weight, pretrained model", "not recoverable", "read, but defined in no parser: the scripts "
                   "fail", "kl_weight = 1 (switch kl_weight; also try 0.1 and 10)"),
        Difference("reduction of L_kl", "-", "mean over all B^2 entries: 1/B of a divergence per row", "released; "
                   "the second divergence is subtracted and unbounded, and nothing is held fixed"),
        Difference("learning rates", "-", "head 5e-5; fusion, gates and types x 0.8, image projection x 0.4, CLIP x "
                   "0.2", "the head's factors as released (our layer for words as the image projection); CLIP "
                   "x 0.2, a Q-Former x 1 (switch backbone_rate)"),
        Difference("optimiser, schedule", "-", "Adam, a tenth of the rate every 10 epochs, 50 epochs (README; the "
                   "CIRR script has 100 and 4e-5)", "AdamW without decay in the recipe, which is Adam; cosine"),
    ),
)  # fmt: skip
