"""``triptych align``."""

import json
from pathlib import Path

import pytest

from triptych.training.model import load_model

pytestmark = pytest.mark.usefixtures("lite_weights")

QUICK = ("--set", "epochs=1", "--set", "batch_size=8")


@pytest.fixture
def captions(tiny_benchmark: Path, tmp_path: Path) -> Path:
    """A CSV of all 48 pictures; the large ones are of the split val."""
    path = tmp_path / "captions.csv"
    ids = sorted(picture.stem for picture in (tiny_benchmark / "images").iterdir())
    rows = [f"{i},a {i.replace('-', ' ')},{'val' if 'large' in i else 'train'}" for i in ids]
    path.write_text("\n".join(["id,name,split", *rows]) + "\n")
    return path


def test_a_model_folder_that_training_can_start_from(triptych, tiny_benchmark: Path, captions: Path) -> None:
    out = captions.parent / "aligned"
    outcome = triptych("align", tiny_benchmark, "--captions", captions, "-o", out, *QUICK)
    assert outcome.code == 0, outcome.err
    assert "warning" not in outcome.err
    assert "aligned on 24 captions" in outcome.out
    assert f"triptych train --data DATA --init {out}" in outcome.out
    model = load_model(out)
    assert model.method is None
    assert (model.info["pairs"], model.info["epochs"]) == (24, 1)
    run = captions.parent / "run"
    asked = ("train", "--data", tiny_benchmark, "--init", out, "-o", run, "--method", "infonce")
    assert triptych(*asked, "--epochs", 1, "--batch-size", 20).code == 0
    assert json.loads((run / "config.json").read_text())["init"] == str(out)


def test_pictures_without_triplets_will_do(triptych, tiny_benchmark: Path, captions: Path) -> None:
    out = captions.parent / "aligned"
    outcome = triptych(
        *("align", tiny_benchmark / "images", "--captions", captions, "-o", out, *QUICK),
        *("--split", "all", "--image-column", "id", "--caption-column", "name", "--set", "backbone.layers=1"),
    )
    assert outcome.code == 0, outcome.err
    assert "aligned on 48 captions" in outcome.out
    assert load_model(out).settings["backbone"] == {"name": "lite", "layers": 1}


def test_captions_of_what_is_searched_are_told(triptych, tiny_benchmark: Path, captions: Path) -> None:
    asked = ("align", tiny_benchmark, "--captions", captions, "-o", captions.parent / "a", "--split", "all")
    outcome = triptych(*asked, *QUICK)
    assert outcome.code == 0
    assert "24 of 48 captions are of pictures that evaluation searches" in outcome.said


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--set", "epoch=1"), 2, 'align: unknown setting "epoch"; known here: epochs, batch_size'),
        (("--set", "batch_size=25"), 2, "a batch of 25 is larger than the data (24 pairs)"),
        (("--backbone", "light"), 2, 'unknown backbone "light"'),
        (("--caption-column", "title"), 1, 'has no column "title"'),
        (("--split", "test"), 1, "holds no (image, caption) pair"),
    ],
)
def test_wrong_options(
    options: tuple[str, ...], code: int, message: str, triptych, tiny_benchmark: Path, captions: Path
) -> None:
    out = captions.parent / "aligned"
    outcome = triptych("align", tiny_benchmark, "--captions", captions, "-o", out, *QUICK, *options)
    assert outcome.code == code
    assert message in outcome.said
    assert not out.exists()


def test_a_folder_in_use_is_refused(triptych, tiny_benchmark: Path, captions: Path) -> None:
    asked = ("align", tiny_benchmark, "--captions", captions, "-o", captions.parent)
    assert triptych(*asked).code == 2
    assert [path.name for path in captions.parent.iterdir()] == ["captions.csv"]


def test_a_caption_without_its_picture_is_named(triptych, tiny_benchmark: Path, captions: Path) -> None:
    with captions.open("a") as file:
        file.write("gone,a lost picture,train\n")
    asked = ("align", tiny_benchmark, "--captions", captions, "-o", captions.parent / "aligned")
    outcome = triptych(*asked, *QUICK)
    assert outcome.code == 1
    assert 'there is no picture "gone"' in outcome.said
