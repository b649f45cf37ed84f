"""RCL: what is said of it."""

from triptych.methods.config import About, Difference

RCL = About(
    idea="A noisy positive harms when it is pulled; a wrong negative harms little. So only push the probabilities of "
    "the other targets down, and never pull the annotated one.",
    sources="RCL (TPAMI 2023); as used by TME, HABIT eq. 8, INTENT eq. 5, ConeSep eq. 4; specification, section 3",
    differences=(
        Difference(
            "composed retrieval", "image and text only", "not released for it", "the fused query of section 0"
        ),
        Difference(
            "direction", "both, summed", "one, inside TME, HABIT, INTENT, ConeSep", "one (switch direction)"
        ),
        Difference(
            "temperature",
            "0.05",
            "0.07; learned in TME",
            "0.07 (switches temperature, learnable_temperature)",
        ),
        Difference("overflow", "exp without a shift", "the same", "a softmax, exact at both ends"),
    ),
)
