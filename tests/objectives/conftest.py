"""Golden values, and features to try losses on."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close


@pytest.fixture(scope="session")
def golden(shared: Path) -> Callable[[str], dict[str, Tensor]]:
    """Read a file of golden values by its stem."""

    def load(stem: str) -> dict[str, Tensor]:
        with np.load(shared / "golden" / f"{stem}.npz") as values:
            return {name: torch.from_numpy(values[name]) for name in values.files}

    return load


@pytest.fixture(scope="session")
def golden_inputs(golden: Callable[[str], dict[str, Tensor]]) -> Callable[[str], dict[str, Tensor]]:
    """Read the shared inputs of a size as their README says: float64, unit rows, ready for gradients."""

    def load(size: str) -> dict[str, Tensor]:
        stored = golden(f"inputs_{size}")
        return {
            name: functional.normalize(value.double(), dim=-1).requires_grad_()
            for name, value in stored.items()
            if value.dtype == torch.float16
        }

    return load


@pytest.fixture(scope="session")
def check_golden() -> Callable[..., None]:
    """Compare computed with stored values key by key; a key that nothing checks or excludes fails."""

    def check(
        computed: Mapping[str, Tensor],
        stored: Mapping[str, Tensor],
        excluded: Mapping[str, str] | None = None,
    ) -> None:
        assert set(stored) - set(excluded or {}) == set(computed)
        for name, value in computed.items():
            scale = float(stored[name].double().abs().max())
            assert_close(
                value.detach(),
                stored[name],
                rtol=1e-6,
                atol=1e-9 * scale,
                msg=lambda text, name=name: f"{name}: {text}",
            )

    return check
