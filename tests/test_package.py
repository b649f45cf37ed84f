"""What ``import triptych`` gives, and what it does not load."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import triptych


def in_a_new_process(code: str, **environment: str) -> Any:
    """Run code that prints JSON."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OMP")}
    result = subprocess.run(
        [sys.executable, "-c", code], env={**kept, **environment}, capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout)


def test_the_import_is_quick_and_loads_no_heavy_package() -> None:
    code = (
        "import time; start = time.process_time(); import triptych; spent = time.process_time() - start\n"
        "import json, sys; print(json.dumps([spent, sorted(sys.modules)]))"
    )
    seconds, modules = in_a_new_process(code)
    assert seconds < 1
    assert not {"torch", "transformers", "accelerate", "numpy", "pyarrow", "sklearn"} & set(modules)


def test_threads_wait_passively_unless_told_otherwise() -> None:
    code = "import triptych, os; print('\"' + os.environ['OMP_WAIT_POLICY'] + '\"')"
    assert in_a_new_process(code) == "passive"
    assert in_a_new_process(code, OMP_WAIT_POLICY="ACTIVE") == "ACTIVE"


@pytest.mark.parametrize("name", triptych.__all__)
def test_each_public_name_is_there(name: str) -> None:
    assert name in dir(triptych)
    assert getattr(triptych, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'serach'"):
        triptych.serach  # noqa: B018


def test_names_lead_where_they_say() -> None:
    from triptych.training.train import train
    from triptych.triplets import read_benchmark

    assert triptych.train is train
    assert triptych.load_benchmark is read_benchmark


def test_search_is_a_package_and_can_be_called() -> None:
    engine = importlib.import_module("triptych.search.engine")
    assert triptych.search.Hit is engine.Hit
    with pytest.raises(triptych.errors.UsageError, match="needs a reference picture, a text, or both"):
        triptych.search("run", "data")


def test_the_version_is_that_of_the_project() -> None:
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{triptych.__version__}"' in project
