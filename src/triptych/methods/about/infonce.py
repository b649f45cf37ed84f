"""InfoNCE: what is said of it."""

from triptych.methods.config import About

INFONCE = About(
    idea="Classify the annotated target among the batch's targets. It trusts every annotation, so with enough epochs "
    "it memorises the wrong ones: the baseline that noise-robust methods are measured against.",
    sources="specification, sections 0 and 4 (L_itc of SPRC with the single fusion pass)",
)
