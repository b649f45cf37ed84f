"""The door itself: verbs, errors, exit codes."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from triptych.cli import main, methods
from triptych.cli.main import VERBS
from triptych.errors import DataError


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "triptych.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_version() -> None:
    result = run("--version")
    assert (result.returncode, result.stdout) == (0, "triptych 0.1.0\n")


def test_help_lists_each_verb_with_its_purpose_on_one_line() -> None:
    lines = run("--help").stdout.splitlines()
    for verb, purpose in VERBS.items():
        assert any(verb in line and purpose in line for line in lines), verb


def test_help_is_quick_and_loads_no_heavy_package() -> None:
    code = (
        "import sys, time; from triptych.cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'pyarrow', 'pydantic', 'PIL'} & set(sys.modules)\n"
        "sys.exit(f'{heavy} {time.process_time()}' if heavy or time.process_time() > 1 else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_light_and_explains_itself(verb: str, triptych) -> None:
    import_module(f"triptych.cli.{verb}")
    outcome = triptych(verb, "--help")
    assert outcome.code == 0
    assert f"Usage: triptych {verb}" in outcome.out


def test_no_verb_loads_torch() -> None:
    modules = ", ".join(f"triptych.cli.{verb}" for verb in VERBS)
    code = (
        f"import sys, {modules}; sys.exit(bool({{'torch', 'transformers', 'matplotlib'}} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_wrong_usage_is_exit_code_2_without_a_traceback(tmp_path: Path) -> None:
    result = run("data", "info", str(tmp_path / "no[bold]where"))
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == f"error: {tmp_path}/no[bold]where: there is no such file or folder\n"


def test_wrong_data_is_exit_code_1_with_the_mend(tmp_path: Path) -> None:
    result = run("data", "info", str(tmp_path))
    assert result.returncode == 1
    assert result.stderr.startswith(
        f"error: {tmp_path}: no triplets found\n  Expected a folder with captions/"
    )
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("arguments", [("trian",), ("train", "--epoch", "3"), ("train", "--epochs", "many")])
def test_unknown_verbs_and_options_are_exit_code_2(arguments: tuple[str, ...], triptych) -> None:
    outcome = triptych(*arguments)
    assert outcome.code == 2
    assert arguments[-1] in outcome.err or arguments[-2] in outcome.err


def test_ctrl_c_is_exit_code_130(triptych, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "Console", raises(KeyboardInterrupt()))
    outcome = triptych("methods")
    assert outcome.code == 130
    assert "stopped" in outcome.err
    assert "error" not in outcome.err


def test_a_stopped_run_is_no_error(triptych, monkeypatch: pytest.MonkeyPatch) -> None:
    from triptych.training.loop import Interrupted

    message = "stopped in epoch 3 after step 7; nothing is lost.\n  Go on with: triptych train --resume run"
    monkeypatch.setattr(methods, "Console", raises(Interrupted(message)))
    outcome = triptych("methods")
    assert (outcome.code, outcome.err) == (130, message + "\n")


def test_a_fault_of_ours_keeps_its_traceback(triptych, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "Console", raises(ZeroDivisionError("ours")))
    with pytest.raises(ZeroDivisionError, match="ours"):
        triptych("methods")


def test_an_error_is_shown_with_its_place_and_mend(capsys: pytest.CaptureFixture[str]) -> None:
    error = DataError("is missing", file="cap.json", row=17, field="target", mend="Add it. [red]")
    main.show_error(error)
    assert capsys.readouterr().err == (
        'error: cap.json, entry 17: is missing (field "target")\n  Add it. [red]\n'
    )


def raises(error: BaseException):
    def instead(*_: object, **__: object) -> None:
        raise error

    return instead
