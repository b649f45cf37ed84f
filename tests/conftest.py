"""Fixtures that every test may use."""

import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
from hypothesis import settings

settings.register_profile("triptych", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("triptych")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of official annotations, golden values and photos; absent on a user's machine."""
    root = Path(os.environ.get("TRIPTYCH_SHARED", Path(__file__).parents[2] / "shared"))
    if not root.is_dir():
        pytest.skip(f"shared data not found at {root}; set TRIPTYCH_SHARED to its folder")
    return root
