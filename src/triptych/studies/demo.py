"""The demo: what noise does to training, from a data set to a page; it can be interrupted and repeated."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from triptych.backbones.token_cache import TokenCache
from triptych.errors import UsageError
from triptych.evaluation import REFERENCE_REMOVED, Evaluation
from triptych.files import atomic_write, write_json
from triptych.noise import NoiseManifest, inject
from triptych.randomness import generator
from triptych.studies.demo_gallery import GALLERY, build_gallery, missing_packages
from triptych.studies.drawn_start import ALIGN_BATCH, Stages, aligned_start, drawn_benchmark
from triptych.studies.html import (
    Answers,
    Comparison,
    HitView,
    Picture,
    QueryView,
    demo_report,
    result_row,
)
from triptych.training.evaluate import SplitEvaluator, noise_info
from triptych.training.loop import Watcher
from triptych.training.model import load_model
from triptych.training.run import Run
from triptych.training.train import resume, train
from triptych.triplets import Benchmark, ImageStore, read_benchmark
from triptych.triplets.images import ImageError
from triptych.triplets.text import join_captions
from triptych.triplets.thumbnail import thumbnail_data_uri

Watch = Callable[[str], Watcher]
QUERIES, HITS = 10, 5
_TITLES = {"infonce": "InfoNCE", "intent": "INTENT", "rcl": "RCL"}


class DemoSettings(BaseModel):
    """What the demo does; the defaults fit a laptop's two cores."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str | None = Field(None, description="a data set; None draws one")
    train: int = Field(600, description="training triplets that are drawn")
    val: int = Field(480, description="validation queries that are drawn")
    ratio: float = Field(0.5, description="share of the training triplets that is corrupted (mix)")
    methods: tuple[str, ...] = Field(("infonce", "intent"), description="what is compared")
    align_epochs: int = Field(8, description="epochs of the alignment on captions")
    epochs: int = Field(10, description="epochs of each method")
    batch_size: int = Field(64, description="triplets a step")
    dropout: float = Field(0.0, description="dropout; without it a naive loss memorises what is wrong")
    backbone: dict[str, Any] = Field(
        default_factory=lambda: {"name": "lite"}, description="name and sizes of the backbone"
    )
    seed: int = 0


def run_demo(folder: Path, settings: DemoSettings, *, stages: Stages, watch: Watch) -> Path:
    """Run the demo and return the path of its report.

    What is finished is kept: called again after an interruption it goes on.

    Where the packages for searching and serving are installed it also builds a gallery of validation pictures.

    Args:
        folder: where data, runs, report and gallery go.
        settings: what to do.
        stages: called with (what is being done, done, total).
        watch: gives the callbacks of a method's training.

    Raises:
        UsageError: the folder holds something else.
        DataError: the data cannot be used.
    """
    started = time.monotonic()
    _claim(folder, settings)
    benchmark, captions = _data(folder, settings, stages)
    noise = _noise(folder, settings, benchmark)
    start = _align(folder, settings, benchmark.images, captions, stages) if captions else None
    runs = {
        name: _train(folder / name, name, settings, benchmark, noise, start, stages, watch)
        for name in settings.methods
    }
    evaluations = {name: _evaluate(run, benchmark, stages) for name, run in runs.items()}
    for name, (best, last) in evaluations.items():
        best.write(folder / name / "evaluation-best.json")
        last.write(folder / name / "evaluation-last.json")
    report = folder / "report.html"
    page = _report(settings, benchmark, noise, runs, evaluations, time.monotonic() - started)
    with atomic_write(report) as file:
        file.write(page)
    if not missing_packages():
        build_gallery(folder / GALLERY, runs[settings.methods[-1]].folder, benchmark, stages)
    return report


def _claim(folder: Path, settings: DemoSettings) -> None:
    marker, wanted = folder / "demo.json", settings.model_dump(mode="json")
    if marker.is_file():
        if json.loads(marker.read_text(encoding="utf-8")) != wanted:
            raise UsageError(
                f"{folder} holds a demo with other settings.\n  Delete it, or choose another folder with -o."
            )
    elif folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty and holds no demo.\n  Choose another folder with -o.")
    else:
        write_json(marker, wanted)


def _data(folder: Path, settings: DemoSettings, stages: Stages) -> tuple[Benchmark, Path | None]:
    if settings.data is None:
        path = drawn_benchmark(
            folder / "data", train=settings.train, val=settings.val, seed=settings.seed, stages=stages
        )
    else:
        path = Path(settings.data)
    return read_benchmark(path), _captions(path)


def _captions(data: Path) -> Path | None:
    found = (data / name for name in ("captions.csv", "attributes.csv"))
    return next((path for path in found if path.is_file()), None)


def _noise(folder: Path, settings: DemoSettings, benchmark: Benchmark) -> NoiseManifest:
    path = folder / "noise.json"
    if not path.is_file():
        inject(benchmark.train, kind="mix", ratio=settings.ratio, seed=42).write(path)
    return NoiseManifest.read(path, benchmark.train)


def _backbone(settings: DemoSettings) -> dict[str, Any]:
    return {**settings.backbone, "dropout": settings.dropout}


def _align(folder: Path, settings: DemoSettings, images: ImageStore, captions: Path, stages: Stages) -> Path:
    return aligned_start(
        folder / "aligned",
        images,
        captions,
        backbone=_backbone(settings),
        epochs=settings.align_epochs,
        seed=settings.seed,
        stages=stages,
    )


def _train(
    folder: Path,
    name: str,
    settings: DemoSettings,
    benchmark: Benchmark,
    noise: NoiseManifest,
    start: Path | None,
    stages: Stages,
    watch: Watch,
) -> Run:
    if (folder / "config.json").is_file():
        return resume(folder, watcher=watch(name), stages=stages)
    method = {"name": name, "counterfactual_bank": 4} if name == "intent" else {"name": name}
    training = {
        "epochs": settings.epochs,
        "batch_size": settings.batch_size,
        "captions": "fixed",
        "patience": 0,
        "seed": settings.seed,
    }
    return train(
        benchmark,
        folder,
        method=method,
        backbone=_backbone(settings),
        noise=noise,
        init=start,
        training=training,
        watcher=watch(name),
        stages=stages,
    )


def _evaluate(run: Run, benchmark: Benchmark, stages: Stages) -> tuple[Evaluation, Evaluation]:
    best, last = load_model(run.best), load_model(run.last)
    evaluator = SplitEvaluator(benchmark, "val", best, TokenCache(best.backbone))
    results = []
    for at, model in enumerate((best, last)):
        result = evaluator.evaluate(
            model,
            protocol=REFERENCE_REMOVED,
            name=run.folder.name,
            noise=noise_info(run.noise),
            context=at == 0,
            samples=1000,
        )
        results.append(result)
        stages(f"evaluating {run.folder.name}", at + 1, 2)
    return results[0], results[1]


def _report(
    settings: DemoSettings,
    benchmark: Benchmark,
    noise: NoiseManifest,
    runs: dict[str, Run],
    evaluations: dict[str, tuple[Evaluation, Evaluation]],
    seconds: float,
) -> str:
    rows = []
    for name, (best, last) in evaluations.items():
        rows.append(result_row(_TITLES.get(name, name), f"best ({best.model.epoch})", best))
        rows.append(result_row(_TITLES.get(name, name), f"last ({last.model.epoch})", last))
    context = evaluations[settings.methods[-1]][0]
    rows += [
        result_row(f"{row} (of {_TITLES.get(settings.methods[-1])})", "best", context, name=row, context=True)
        for row in ("image-only", "text-only")
    ]
    curves = {
        _TITLES.get(name, name): [
            (entry["epoch"] + 1, entry["metrics"]["removed"]["R@10"])
            for entry in run.metrics()
            if entry["kind"] == "validation"
        ]
        for name, run in runs.items()
    }
    share = 100 * noise.ratio_real
    return demo_report(
        title="Triptych demo",
        introduction=(
            f"{len(noise.corruptions)} of {noise.num_triplets} training triplets ({share:.1f} %) were made wrong on "
            "purpose: each has another reference, text or target. Both methods saw the same triplets, from the same "
            "aligned start, for the same number of epochs. Validation data is clean.",
            "A loss that pulls every annotated pair together first learns and then memorises what is wrong; compare "
            "the best epoch with the last one, and the curves.",
        ),
        settings=(
            ("data", f"{benchmark.name}: {len(benchmark.train)} triplets, {len(benchmark.images)} pictures"),
            ("noise", f"mix, {settings.ratio:.0%} asked, {share:.1f} % by value, seed {noise.seed}"),
            (
                "training",
                f"{settings.epochs} epochs, batch {settings.batch_size}, dropout {settings.dropout}",
            ),
            ("time", f"{seconds:.0f} s in this call, installation not counted"),
        ),
        typed=_commands(settings),
        results=rows,
        curves=curves,
        curves_of="R@10 (reference removed), percent",
        comparisons=_comparisons(benchmark, runs, settings.seed),
        remarks=(
            "Figures are percent, means over the categories; below each the 95 % bootstrap interval over queries. One "
            "seed: differences smaller than the intervals mean nothing.",
            "The best epoch is chosen on the same validation queries, so its figure is a little flattered.",
        ),
    )


def _commands(settings: DemoSettings) -> tuple[str, ...]:
    data = settings.data or "demo/data"
    draw = f"triptych data render {data} --train {settings.train} --val {settings.val} --seed {settings.seed}"
    captions = _captions(Path(data)) if settings.data else Path(data) / "captions.csv"
    align_command = (
        f"triptych align {data} --captions {captions} -o aligned --set epochs={settings.align_epochs} "
        f"--set batch_size={ALIGN_BATCH} --set identity=1.0 --set seed={settings.seed}"
    )
    return (
        *(() if settings.data else (draw,)),
        f"triptych noise inject {data} --kind mix --ratio {settings.ratio} --seed 42 -o noise.json",
        *((align_command,) if captions else ()),
        *(
            f"triptych train --data {data} --noise noise.json {'--init aligned ' if captions else ''}--method {name} "
            f"-o {name} --epochs {settings.epochs} --batch-size {settings.batch_size} --seed {settings.seed} "
            "--set training.captions=fixed --set training.patience=0"
            + (" --set method.counterfactual_bank=4" if name == "intent" else "")
            for name in settings.methods
        ),
        *(f"triptych evaluate {name} --data {data}" for name in settings.methods),
    )


def _comparisons(benchmark: Benchmark, runs: dict[str, Run], seed: int) -> list[Comparison]:
    """Show queries drawn by the seed, not by hand, with each method's best hits."""
    models = {name: load_model(run.best) for name, run in runs.items()}
    first = next(iter(models.values()))
    evaluator = SplitEvaluator(benchmark, "val", first, TokenCache(first.backbone))
    places = [
        (part, row)
        for part, query_set in enumerate(evaluator.query_sets)
        for row in range(len(query_set.queries))
    ]
    drawn = generator(seed, "demo", "queries").choice(
        len(places), size=min(QUERIES, len(places)), replace=False
    )
    comparisons = []
    found = {name: evaluator.top(model, HITS) for name, model in models.items()}
    for at in sorted(drawn.tolist()):
        part, row = places[at]
        query_set = evaluator.query_sets[part]
        triplet = query_set.queries[row]
        assert triplet.target is not None
        right = set(query_set.answers.get(triplet.triplet_id, ())) | {triplet.target}
        answers = tuple(
            Answers(
                _TITLES.get(name, name),
                tuple(
                    HitView(
                        _picture(benchmark.images, query_set.gallery[index]),
                        score,
                        query_set.gallery[index] in right,
                    )
                    for index, score in zip(
                        hits[part].indices[row].tolist(), hits[part].scores[row].tolist(), strict=True
                    )
                    if index >= 0
                ),
            )
            for name, hits in found.items()
        )
        query = QueryView(
            _picture(benchmark.images, triplet.reference),
            join_captions(triplet.captions),
            _picture(benchmark.images, triplet.target),
        )
        comparisons.append(Comparison(query, answers))
    return comparisons


def _picture(images: ImageStore, image_id: str) -> Picture:
    try:
        return Picture(image_id, thumbnail_data_uri(images.load(image_id)))
    except ImageError:
        return Picture(image_id)
