"""Which figures there are, and what each shows in one line; light, for ``triptych figure --help``."""

from __future__ import annotations

FIGURES = {
    "learning": "A metric after each epoch, of one or more runs.",
    "sensitivity": "A metric over the values of a setting that runs differ in (ConeSep 3, 7, 8; HABIT 5).",
    "retention": "What share of the metric of clean training is left at each rate of noise.",
    "noise-ranks": "Which method is first, second, ... at each rate of noise, a panel a data set (HABIT 4).",
    "trusted": "Purity and recall of the triplets that a run trusts, epoch by epoch (ConeSep 6).",
    "triplets": "Training triplets with the trust that a run puts in them (ConeSep 10, HABIT 7).",
    "negative-cosine": "Histogram of the cosine of queries and their negative queries (ConeSep 5).",
    "negative-results": "What the negative query finds beside what the query finds (ConeSep 9).",
    "loyalty-ranks": "Where right answers stand by similarity and by loyalty (INTENT 6).",
    "similarity": "Similarity of a batch's queries and targets, two runs side by side (INTENT 7, HABIT 8).",
    "interventions": "Pictures under the five interventions (INTENT 5).",
    "counterfactuals": "What a run's own intervention makes of references: a preview before training.",
    "attention": "Which words and which regions of the reference a query is made of.",
    "results": "The best five of up to three runs side by side, failures among them (INTENT 4, 8; HABIT 3).",
}
"""Each figure by its name on the command line."""
