"""``triptych data render``."""

from typer.testing import CliRunner

from triptych.cli.data import app
from triptych.errors import UsageError

runner = CliRunner()


def test_render_says_what_it_made(tmp_path):
    out = tmp_path / "rendered"
    result = runner.invoke(app, ["render", str(out), "--seed", "3", "--train", "6", "--val", "3"])
    assert result.exit_code == 0, result.output
    assert "train: 6 triplets over 33 pictures" in result.stdout
    assert "val: 3 triplets" in result.stdout
    info = runner.invoke(app, ["info", str(out)])
    assert info.exit_code == 0
    assert "CC0" in info.stdout


def test_render_refuses_a_folder_in_use(tmp_path):
    (tmp_path / "file").write_text("")
    result = runner.invoke(app, ["render", str(tmp_path)])
    assert isinstance(result.exception, UsageError)


def test_help_names_the_settings():
    text = runner.invoke(app, ["render", "--help"], env={"COLUMNS": "200"}).output
    for option in ("--seed", "--train", "--val", "4000", "800"):
        assert option in text
