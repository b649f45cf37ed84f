"""``triptych figure``: every figure from small runs, its files, and what is said where something is missing."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from triptych.cli.figure import COMMANDS
from triptych.studies.figures.catalogue import FIGURES

pytestmark = pytest.mark.usefixtures("shared_towers")
DOCS = Path(__file__).parents[2] / "docs" / "figures.md"


@pytest.fixture(scope="module")
def runs(shared_towers: None, tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs on the tiny data: InfoNCE as trained, and ConeSep and INTENT with untrained methods on its backbone."""
    from triptych.methods.registry import create
    from triptych.training.config import settings_hash
    from triptych.training.evaluate import evaluate
    from triptych.training.model import load_model, save_model

    folder = tmp_path_factory.mktemp("runs")
    made = {"infonce": Path(shutil.copytree(tiny_run, folder / "infonce"))}
    model = load_model(tiny_run)
    for name in ("conesep", "intent"):
        made[name] = Path(shutil.copytree(tiny_run, folder / name))
        settings = {**model.settings, "method": {"name": name}}
        method = create(name, {}, model.backbone.shape)
        for which in ("best", "last"):
            save_model(made[name] / which, model.backbone, method, settings, {"epoch": 2})
        config = json.loads((made[name] / "config.json").read_text())
        config = {key: value for key, value in config.items() if key != "hash"} | {"method": {"name": name}}
        (made[name] / "config.json").write_text(json.dumps({"hash": settings_hash(config), **config}))
    clean = json.loads((made["infonce"] / "config.json").read_text())
    for name, run in made.items():
        evaluate(run, clean["data"], samples=0).write(run / "evaluation-best.json")
        twin = made[name].parent / f"{name}-clean"
        shutil.copytree(run, twin)
        result = json.loads((twin / "evaluation-best.json").read_text())
        result["noise"] = None
        (twin / "evaluation-best.json").write_text(json.dumps(result))
    return made


def draw(triptych: Any, name: str, out: Path, *arguments: object) -> dict[str, Any]:
    """Draw a figure, look at its three files, and return its numbers."""
    outcome = triptych("figure", name, *arguments, "-o", out / name)
    assert outcome.code == 0, outcome.err
    assert outcome.out.split() == [str(out / f"{name}.{kind}") for kind in ("png", "svg", "json")]
    with Image.open(out / f"{name}.png") as picture:
        assert min(picture.size) > 200
        assert len(set(picture.convert("L").resize((40, 40)).tobytes())) > 3  # not one plain colour
    assert (out / f"{name}.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")
    content: dict[str, Any] = json.loads((out / f"{name}.json").read_text())
    assert content["figure"] == name
    return content


def test_help_lists_every_figure_with_its_purpose(triptych) -> None:
    assert list(COMMANDS) == list(FIGURES)
    said = " ".join(triptych("figure", "--help", columns=200).out.split())
    for name, summary in FIGURES.items():
        assert f"{name} {summary[:-1]}" in said.replace("│ ", "").replace(" │", ""), name


def test_every_figure_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for name in FIGURES:
        assert f"triptych figure {name} " in text, name


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("learning", ["infonce", "--metric", "R@50"]),
        ("retention", ["infonce", "infonce-clean"]),
        ("noise-ranks", ["infonce", "conesep", "infonce-clean", "conesep-clean"]),
        ("loyalty-ranks", ["intent", "--plain", "infonce", "--batch", 5]),
        ("similarity", ["infonce", "intent", "--batch", 5]),
        ("negative-cosine", ["conesep"]),
        ("triplets", ["infonce", "--count", 2, "--epoch", 1]),
        ("counterfactuals", ["intent", "--count", 1, "--variants", 2]),
        ("attention", ["conesep", "--count", 2, "--words", 2]),
        ("results", ["intent", "infonce", "--count", 2, "--failures", 1]),
    ],
)
def test_a_figure(triptych, runs: dict[str, Path], tmp_path: Path, name: str, options: list[object]) -> None:
    folder = runs["infonce"].parent
    arguments = [folder / str(each) if (folder / str(each)).is_dir() else each for each in options]
    content = draw(triptych, name, tmp_path, *arguments)
    assert content["numbers"]


@pytest.mark.parametrize("name", ["trusted", "triplets", "negative-results"])
def test_the_same_run_gives_the_same_bytes(
    triptych, runs: dict[str, Path], tmp_path: Path, name: str
) -> None:
    for folder in ("once", "again"):
        draw(triptych, name, tmp_path / folder, runs["conesep"])
    for kind in ("png", "svg", "json"):
        once, again = (tmp_path / folder / f"{name}.{kind}" for folder in ("once", "again"))
        assert once.read_bytes() == again.read_bytes()


def test_interventions_need_data_only(triptych, tiny_benchmark: Path, tmp_path: Path) -> None:
    chosen = "plain-small-red-circle"
    content = draw(triptych, "interventions", tmp_path, tiny_benchmark, "--picture", chosen)
    (altered,) = content["numbers"]
    assert altered["image_id"] == chosen
    assert altered["names"][0] == "original"


def test_counterfactuals_before_any_training(triptych, tiny_benchmark: Path, tmp_path: Path) -> None:
    options = ["--data", tiny_benchmark, "--count", 1, "--variants", 1]
    sizes = ["--set", "backbone.image_size=64", "--set", "backbone.image_width=32"]
    changes = {}
    for high in ("0.0", "1.0"):  # no share of the other picture's look, and all of it
        share = ["--set", f"method.lambda_range=[{high}, {high}]"]
        content = draw(triptych, "counterfactuals", tmp_path / high, *options, *sizes, *share)
        changes[high] = content["numbers"][0]["change"][1]
        assert f"method.lambda_range=[{high}, {high}]" in content["notes"][0]
    assert changes["0.0"] == pytest.approx(0, abs=1e-3)
    assert changes["1.0"] > 1


def test_a_sensitivity_curve(triptych, runs: dict[str, Path], tmp_path: Path) -> None:
    other = Path(shutil.copytree(runs["infonce"], tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    config["training"]["batch_size"] = 16
    (other / "config.json").write_text(json.dumps(config))
    content = draw(
        triptych, "sensitivity", tmp_path, runs["infonce"], other, "--setting", "training.batch_size"
    )
    (line,) = content["numbers"]["lines"].values()
    assert line["at"] == [8.0, 16.0]


def test_failures_are_among_the_results(triptych, runs: dict[str, Path], tmp_path: Path) -> None:
    content = draw(triptych, "results", tmp_path, runs["infonce"], "--count", 4)
    places = content["numbers"]["columns"][0]["target_rank"]
    assert sum(place != 1 for place in places) >= 3
    assert "none picked by hand" in content["notes"][0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["negative-cosine", "infonce"],
            "needs the negative query of ConeSep, and this run was trained with infonce.",
        ),
        (["negative-results", "intent"], "--method conesep -o RUN"),
        (["counterfactuals", "infonce"], "infonce alters no pictures"),
        (["counterfactuals"], "name a run, or the data with --data DATA"),
        (["counterfactuals", "intent", "--set", "method.alpha=1"], "a run has its settings"),
        (["sensitivity", "infonce", "--setting", "training.seed"], "has no setting"),
        (["similarity", "infonce", "infonce"], "is named twice"),
        (["results", "infonce", "conesep", "intent", "infonce-clean"], "room for three runs"),
        (["results", "infonce", "--count", 2], "0 to 2 failures"),
        (["retention", "infonce"], "train one without --noise"),
    ],
)
def test_what_is_missing_is_said(
    triptych, runs: dict[str, Path], tmp_path: Path, arguments: list[object], said: str
) -> None:
    folder = runs["infonce"].parent
    name, *rest = arguments
    rest = [folder / str(each) if (folder / str(each)).is_dir() else each for each in rest]
    outcome = triptych("figure", name, *rest, "-o", tmp_path / "x")
    assert outcome.code == 2
    assert said in outcome.said
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib(
    triptych, runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "matplotlib.ticker"):
        monkeypatch.setitem(sys.modules, name, None)
    outcome = triptych("figure", "similarity", runs["infonce"], "-o", tmp_path / "x")
    assert outcome.code == 2
    assert triptych("figure", "similarity", "--help").code == 0
    assert "figures need matplotlib: pip install 'triptych[figures]'" in outcome.said
