"""The published evaluation loops' figures, from the same features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from triptych.evaluation.metrics import (
    average_precision_at_k,
    recall_at_k,
    subset_ranks,
    without_reference,
)
from triptych.evaluation.ranking import UNRANKED, rank


@pytest.fixture(scope="module")
def golden(shared: Path) -> dict[str, np.ndarray]:
    with np.load(shared / "golden" / "eval_metrics.npz") as stored:
        return {key: stored[key] for key in stored.files}


def recalls(ranks: np.ndarray, ks: tuple[int, ...]) -> list[float]:
    return [float(100 * recall_at_k(ranks, k).mean()) for k in ks]


def test_scores_are_the_best_of_an_images_vectors(golden: dict[str, np.ndarray]) -> None:
    scores = np.einsum("nd,gqd->ngq", golden["query"], golden["gallery"]).max(axis=-1)
    np.testing.assert_allclose(scores, golden["sims"], rtol=1e-6)


@pytest.mark.parametrize("budget", [1, 10_000, 2**28])
def test_fashioniq_recall_with_the_reference_kept_and_removed(
    golden: dict[str, np.ndarray], budget: int
) -> None:
    sims, targets, references = golden["sims"], golden["tgt_idx"], golden["ref_idx"]
    both = rank(
        lambda q, g: sims[q, g],
        *sims.shape,
        ranks_of=np.stack([targets, references], axis=1).tolist(),
        memory_budget_bytes=budget,
    )
    kept, reference = np.array(both.ranks).T
    removed = rank(
        lambda q, g: sims[q, g],
        *sims.shape,
        ranks_of=targets[:, None].tolist(),
        exclude=references.tolist(),
        memory_budget_bytes=budget,
    )
    np.testing.assert_allclose(recalls(kept, (1, 10, 50)), golden["fiq_ref_kept_R1_R10_R50"])
    np.testing.assert_allclose(
        recalls(without_reference(kept, reference), (1, 10, 50)), golden["fiq_ref_removed_R1_R10_R50"]
    )
    np.testing.assert_array_equal(np.concatenate(removed.ranks), without_reference(kept, reference))


def test_cirr_recall_in_the_gallery_and_in_the_subset(golden: dict[str, np.ndarray]) -> None:
    sims, targets, references, subset = (golden[key] for key in ("sims", "tgt_idx", "ref_idx", "subset"))
    ranks = rank(
        lambda q, g: sims[q, g],
        *sims.shape,
        ranks_of=np.column_stack([targets, subset]).tolist(),
        exclude=references.tolist(),
    ).ranks
    target = np.array([own[0] for own in ranks])
    members = [own[1:][own[1:] != UNRANKED] for own in ranks]
    assert {len(own) for own in members} == {5}
    figures = recalls(target, (1, 5, 10, 50)) + recalls(subset_ranks(target, members), (1, 2, 3))
    np.testing.assert_allclose(figures, golden["cirr_R1_R5_R10_R50_Rs1_Rs2_Rs3"])


def test_circo_average_precision_and_recall(golden: dict[str, np.ndarray]) -> None:
    """Predictions become ranks: an answer that is not among the 50 predicted images is never found."""
    place = [{image: at for at, image in enumerate(row)} for row in golden["circo_pred"].tolist()]
    answers = [[image for image in row if image >= 0] for row in golden["circo_gt_padded_minus1"].tolist()]
    ranks = [
        np.array([where.get(image, UNRANKED) for image in right], dtype=np.int64)
        for where, right in zip(place, answers, strict=True)
    ]
    ks = (5, 10, 25, 50)
    np.testing.assert_allclose(
        [average_precision_at_k(ranks, k).mean() for k in ks], golden["circo_mAP_5_10_25_50"], rtol=1e-9
    )
    first = np.array([own[0] for own in ranks])
    np.testing.assert_allclose([recall_at_k(first, k).mean() for k in ks], golden["circo_recall_5_10_25_50"])
