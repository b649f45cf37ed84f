"""Golden values, and features to try losses on."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

EXCLUDED = {
    "inputs_*/*": "inputs of the other files",
    "rcl_*/ccl_tan_*": "for orientation only, says the README: not in the specification",
    "rcl_*/ccl_abs_*": "for orientation only",
    "rcl_*/ccl_exp_*": "for orientation only",
    "rcl_*/ccl_gce_*": "for orientation only",
    "rde_*/trl_per_*": "for orientation only",
    "rde_*/sdm_per_*": "for orientation only",
    "rde_*/infonce_per_scale50": "for orientation only",
    "rde_*/pred_[AB]": "an input",
    "rde_*/coin": "an input",
    "rde_*/split_prob_in*": "an input",
    "sprc_*/fusion_query_tokens": "an input",
    "sprc_*/prompt_tokens": "an input",
    "cala_*/*_tokens": "an input",
    "cala_*/w_*": "weights; the release never calls the hinge's layers that end in 2",
    "ssn_*/text_*": "an input",
    "ssn_*/ref_*": "an input",
    "ssn_*/tgt_*": "an input",
    "ssn_*/w_*": "weights",
    "tme_losses_*/labels": "an input",
    "tme_losses_*/align_left": "an input",
    "tme_losses_*/align_right": "an input",
    "tme_gmm/?_loss_raw_float32": "an input",
    "tme_gmm/?_true_noisy": "how the input was made",
    "habit_*/db_current": "an input",
    "habit_*/db_history": "an input",
    "habit_*/labels_history": "an input",
    "habit_*/sim_history": "an input",
    "intent_spectrum_mix/?_img?": "an input",
    "intent_spectrum_mix/?_*_lam": "an input",
    "intent_spectrum_mix/?_*_ratio": "an input",
    "conesep_*/omega": "an input",
    "blip2_parity/input_ids": "an input",
    "blip2_parity/attention_mask": "an input",
    "blip2_parity/image_tokens": "an input",
    "blip2_parity/difference_tokens": "an input",
    "blip2_parity/prompt_tokens": "an input",
    "blip2_parity/negative_tokens": "an input",
    "eval_metrics/query": "an input",
    "eval_metrics/gallery": "an input",
    "eval_metrics/*_idx": "an input",
    "eval_metrics/subset": "an input",
    "eval_metrics/circo_gt_padded_minus1": "an input",
    "eval_metrics/circo_pred": "an input",
}
"""Golden keys, as file/key, that no test compares, and why. Nothing else may be left out."""


class GoldenFile(dict[str, Tensor]):
    """The values of a file by key; a test that reads it compares all of them."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as values:
            super().__init__({name: torch.from_numpy(values[name]) for name in values.files})
        self.stem = path.stem
        self.compared = False


@pytest.fixture
def golden(shared: Path) -> Iterator[Callable[[str], GoldenFile]]:
    """Read a file of golden values by its stem; fails a test that does not compare what it read."""
    opened: list[GoldenFile] = []

    def load(stem: str) -> GoldenFile:
        opened.append(GoldenFile(shared / "golden" / f"{stem}.npz"))
        return opened[-1]

    yield load
    for file in opened:
        assert file.compared, f"{file.stem}: was read, but not given to check_golden"


@pytest.fixture(scope="session")
def golden_inputs(shared: Path) -> Callable[[str], dict[str, Tensor]]:
    """Read the shared inputs of a size as their README says: float64, unit rows, ready for gradients."""

    def load(size: str) -> dict[str, Tensor]:
        stored = GoldenFile(shared / "golden" / f"inputs_{size}.npz")
        return {
            name: functional.normalize(value.double(), dim=-1).requires_grad_()
            for name, value in stored.items()
            if value.dtype == torch.float16
        }

    return load


@pytest.fixture(scope="session")
def golden_exclusions() -> Mapping[str, str]:
    """Patterns of golden keys that need no comparison, each with its reason."""
    return EXCLUDED


@pytest.fixture(scope="session")
def to_compare(golden_exclusions: Mapping[str, str]) -> Callable[[str, Iterable[str]], set[str]]:
    """Say which keys of a golden file a test must compare."""

    def keys(stem: str, stored: Iterable[str]) -> set[str]:
        return {key for key in stored if not any(fnmatchcase(f"{stem}/{key}", p) for p in golden_exclusions)}

    return keys


@pytest.fixture(scope="session")
def check_golden(to_compare: Callable[[str, Iterable[str]], set[str]]) -> Callable[..., None]:
    """Compare computed with stored values key by key; a key that nothing computes or excludes fails.

    ``scaled`` gives some keys an absolute tolerance as a share of the largest entry, in place of 1e-9.
    """

    def check(
        computed: Mapping[str, Tensor],
        stored: GoldenFile,
        *,
        rtol: float = 1e-6,
        atol: float = 0.0,
        scaled: Mapping[str, float] | None = None,
    ) -> None:
        assert set(computed) == to_compare(stored.stem, stored)
        for name, value in computed.items():
            assert value is not stored[name], f"{name}: compared with itself; if it is an input, exclude it"
            largest = float(stored[name].double().abs().max())
            assert_close(
                value.detach(),
                stored[name],
                rtol=rtol,
                atol=max(atol, (scaled or {}).get(name, 1e-9) * largest),
                msg=lambda text, name=name: f"{name}: {text}",
            )
        stored.compared = True

    return check
