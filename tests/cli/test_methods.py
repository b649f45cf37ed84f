import subprocess
import sys

import pytest
from typer.testing import CliRunner

from triptych.cli.methods import app
from triptych.errors import UsageError
from triptych.methods import registry


def run(*arguments: str, columns: int = 100) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": str(columns)}, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_the_list_names_each_method_its_paper_and_a_line() -> None:
    text = " ".join(run(columns=400).replace("│", " ").split())
    for name in registry.names():
        method = registry.get(name)
        assert f" {name} {method.summary} {method.paper} " in text
    assert "triptych methods show" in text


@pytest.mark.parametrize("name", registry.names())
def test_show_prints_every_switch_with_default_type_and_meaning(name: str) -> None:
    text = run("show", name)
    flat = " ".join(text.split())
    for switch, field in registry.get(name).Config.model_fields.items():
        assert f" {switch} " in text
        assert str(field.description).split()[0] in flat


def test_show_writes_defaults_as_a_recipe_would() -> None:
    lines = run("show", "intent").splitlines()
    by_switch = {line.split()[0]: line for line in lines if line.strip()}
    assert "0.6" in by_switch["alpha"]
    assert "number >= 0" in by_switch["alpha"]
    assert '"ce_scaled"' in by_switch["sod"]
    assert "ce_scaled | neglog" in by_switch["sod"]
    assert "[0.0, 1.0]" in by_switch["lambda_range"]
    assert "[number, number]" in by_switch["lambda_range"]
    assert "true | false" in by_switch["mask_diagonal"]
    assert ">= 0, <= 1" in by_switch["window_ratio"]
    assert "whole number" in by_switch["counterfactual_bank"]


def test_an_unknown_method_is_named_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match='unknown method "intnt"; did you mean "intent"'):
        run("show", "intnt")


def test_importing_the_command_does_not_import_torch() -> None:
    code = "import sys, triptych.cli.methods; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
