"""The demo on a tiny data set: it runs, goes on after an interruption, and says what was run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triptych.errors import UsageError
from triptych.studies.demo import DemoSettings, run_demo
from triptych.training.loop import Watcher
from triptych.training.run import Run


@pytest.fixture(scope="module")
def data(tiny_benchmark: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny data set with a caption for each training picture."""
    folder = tmp_path_factory.mktemp("demo-data") / "tiny"
    shutil.copytree(tiny_benchmark, folder)
    names = sorted(path.stem for path in (folder / "images").glob("*-small-*.png"))
    lines = ["image_id,split,caption", *(f"{name},train,{name.replace('-', ' ')}" for name in names)]
    (folder / "captions.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def settings(sizes: dict[str, Any], lite_weights: None, data: Path) -> DemoSettings:
    return DemoSettings(data=str(data), align_epochs=1, epochs=2, batch_size=8, backbone=sizes)


def run(
    folder: Path, settings: DemoSettings, watch: Callable[[str], Watcher] = lambda name: Watcher()
) -> str:
    report = run_demo(folder, settings, stages=lambda *told: None, watch=watch)
    assert report == folder / "report.html"
    return report.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def finished(settings: DemoSettings, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("demo") / "out"
    return folder, run(folder, settings)


def test_the_report_shows_best_and_last_epoch_of_both(finished: tuple[Path, str], data: Path) -> None:
    folder, page = finished
    for method, title in (("infonce", "InfoNCE"), ("intent", "INTENT")):
        assert title in page
        for which in ("best", "last"):
            assert f"{which} (" in page
            figures = json.loads((folder / method / f"evaluation-{which}.json").read_text())
            assert figures["noise"] is not None
    assert "image-only" in page
    assert "text-only" in page
    assert "<img" in page
    assert f"triptych align {data} --captions {data}/captions.csv" in page
    assert "triptych train" in page
    assert "counterfactual_bank=4" in page


def test_it_ends_with_a_gallery_to_serve(finished: tuple[Path, str], lance: None) -> None:
    pytest.importorskip("fastapi")
    from triptych.search import GalleryEngine, Query

    folder, _ = finished
    engine = GalleryEngine(folder / "gallery")
    assert engine.gallery.info.model == "intent"
    hits = engine.search(Query.of(image="plain-large-red-circle", where="category = 'plain'", top=3)).hits
    assert [hit.metadata for hit in hits] == [{"category": "plain"}] * 3
    assert engine.snapshot.images == 24


def test_both_methods_saw_the_same_noise_and_start(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    configs = [json.loads((folder / m / "config.json").read_text()) for m in ("infonce", "intent")]
    assert configs[0]["init"] == configs[1]["init"] == str(folder / "aligned")
    assert (folder / "infonce" / "noise.json").read_bytes() == (folder / "intent" / "noise.json").read_bytes()
    assert configs[0]["training"] == configs[1]["training"]


def test_an_interrupted_demo_goes_on(
    finished: tuple[Path, str], settings: DemoSettings, tmp_path: Path
) -> None:
    class Enough(Exception):
        pass

    def stop(name: str) -> Watcher:
        def on_epoch(*_: Any) -> None:
            raise Enough

        return Watcher(on_epoch=on_epoch) if name == "infonce" else Watcher()

    with pytest.raises(Enough):
        run(tmp_path / "out", settings, stop)
    assert not (tmp_path / "out" / "report.html").exists()
    run(tmp_path / "out", settings)
    for method in ("infonce", "intent"):
        weights = [
            (Run(folder / method).last / "model.safetensors").read_bytes()
            for folder in (tmp_path / "out", finished[0])
        ]
        assert weights[0] == weights[1]


def test_a_folder_of_something_else_is_refused(
    finished: tuple[Path, str], settings: DemoSettings, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds no demo"):
        run(tmp_path, settings)
    with pytest.raises(UsageError, match="other settings"):
        run(finished[0], settings.model_copy(update={"epochs": 3}))


def test_without_captions_there_is_no_alignment(
    tiny_benchmark: Path, settings: DemoSettings, tmp_path: Path
) -> None:
    plain = settings.model_copy(update={"data": str(tiny_benchmark), "methods": ("infonce",), "epochs": 1})
    page = run(tmp_path / "out", plain)
    assert "triptych align" not in page
    assert "--init" not in page
    assert not (tmp_path / "out" / "aligned").exists()
