"""Commands of ``triptych figure`` that show pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from triptych.cli.figure_options import (
    OneRun,
    Out,
    Seed,
    Split,
    opened_runs,
    write,
)
from triptych.cli.inputs import (
    CacheOption,
    CheckpointOption,
    DataOption,
    ImagesOption,
    RecipeOption,
    SettingsOption,
    data_of,
)
from triptych.cli.progress import warn
from triptych.cli.settings import merge
from triptych.errors import UsageError


def triplets(
    run: OneRun,
    count: Annotated[int, typer.Option(min=1, max=12, help="Clean ones, and as many wrong ones.")] = 4,
    epoch: Annotated[int | None, typer.Option(min=1, help="Counted from 1.", show_default="the last")] = None,
    data: DataOption = None,
    images: ImagesOption = None,
    out: Out = None,
) -> None:
    """Draw triplets with their trust."""
    from triptych.studies.figures.triplet_cards import draw_trusted_triplets, trusted_triplets

    benchmark = data_of(run, data, images)
    shown = trusted_triplets(run, benchmark, count=count, epoch=epoch)
    title = f"{run.resolve().name}: {shown.measure} of training triplets"
    write("triplets", draw_trusted_triplets(shown, benchmark.images.load, title=title), out, shown)


def negative_results(
    run: OneRun,
    count: Annotated[int, typer.Option(min=1, max=12, help="Queries.")] = 6,
    seed: Seed = 0,
    split: Split = "val",
    checkpoint: CheckpointOption = "best",
    data: DataOption = None,
    images: ImagesOption = None,
    cache: CacheOption = None,
    out: Out = None,
) -> None:
    """Draw what query and negative query find."""
    from triptych.studies.figures.query_batch import drawn, known_queries
    from triptych.studies.figures.result_sheets import Sheet, best_pictures, draw_sheet

    benchmark = data_of(run, data, images)
    with opened_runs([run], benchmark, checkpoint, cache) as (opened,):
        opened.conesep("retrieval with the negative query")
        queries = drawn(known_queries(benchmark, split), count, seed, "negative results")
        words = [query.reference for query in queries], [query.text for query in queries]
        columns = (
            ("found by the query c", opened.queries(*words)),
            ("found by the negative query n", opened.negatives(*words, "retrieval with the negative query")),
        )
        found = [best_pictures(opened, queries, vectors, split, label) for label, vectors in columns]
    sheet = Sheet(tuple(queries), tuple(found))
    note = f"{opened.name} on {benchmark.name}/{split}; queries drawn with seed {seed}, none picked by hand."
    write(
        "negative-results",
        draw_sheet(sheet, benchmark.images.load, failures=False, note=note),
        out,
        sheet,
        note,
    )


def interventions(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The data set.", show_default=False)],
    picture: Annotated[
        list[str] | None,
        typer.Option(help="Id of a picture; may be repeated.", show_default="drawn references"),
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=12, help="Pictures, where none is named.")] = 3,
    seed: Seed = 0,
    images: ImagesOption = None,
    out: Out = None,
) -> None:
    """Draw the five interventions."""
    from triptych.studies.figures.altered_pictures import draw_altered, intervened, picture_pairs
    from triptych.triplets import read_benchmark

    benchmark = read_benchmark(data, images=images)
    pairs = picture_pairs(benchmark.train.column("reference"), picture or (), count, seed)
    altered = intervened(benchmark.images, pairs, seed)
    note = "At 224 px. FFT mix: half of the low amplitudes' look, window 0.5."
    write("interventions", draw_altered(altered, note=note), out, [each.numbers() for each in altered], note)


def counterfactuals(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="[RUN]", help="A run folder; without one, say --data.", show_default=False),
    ] = None,
    recipe: RecipeOption = None,
    assignments: SettingsOption = None,
    picture: Annotated[
        list[str] | None,
        typer.Option(help="Id of a picture; may be repeated.", show_default="drawn references"),
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=12, help="Pictures, where none is named.")] = 3,
    variants: Annotated[int, typer.Option(min=1, max=8, help="Counterfactuals of each picture.")] = 4,
    seed: Seed = 0,
    data: DataOption = None,
    images: ImagesOption = None,
    out: Out = None,
) -> None:
    """Draw counterfactuals of a run, or of settings before any training."""
    from triptych.backbones.registry import create_backbone
    from triptych.studies.figures.altered_pictures import counterfactuals_of, draw_altered, picture_pairs
    from triptych.training.model import Model, build_method
    from triptych.training.source import open_model
    from triptych.triplets import read_benchmark

    if run is not None:
        if recipe or assignments:
            raise UsageError("a run has its settings: leave --recipe and --set out, or name no run")
        benchmark = data_of(run, data, images)
        model = open_model(run).model
        note = f"As the backbone of {run.resolve().name} sees them, with the settings of that run."
    elif data is None:
        raise UsageError("name a run, or the data with --data DATA")
    else:
        settings = merge(recipe, {"method": {}, "backbone": {}}, assignments or [])
        backbone = create_backbone({"name": "lite", **settings["backbone"]})
        method = build_method({"name": "intent", **settings["method"]}, backbone)
        benchmark, model = read_benchmark(data, images=images), Model(backbone, method, {}, {})
        said = [*([f"recipe {recipe}"] if recipe else []), *(assignments or [])]
        note = f"As backbone {backbone.name} sees them; {method.name}, {', '.join(said) or 'its defaults'}."
    pairs = picture_pairs(benchmark.train.column("reference"), picture or (), count, seed)
    altered = counterfactuals_of(
        model.method, model.backbone, benchmark.images, pairs, variants=variants, seed=seed
    )
    write(
        "counterfactuals", draw_altered(altered, note=note), out, [each.numbers() for each in altered], note
    )


def attention(
    run: OneRun,
    count: Annotated[int, typer.Option(min=1, max=12, help="Queries.")] = 5,
    words: Annotated[int, typer.Option(min=1, max=8, help="Words whose regions are shown.")] = 4,
    seed: Seed = 0,
    split: Split = "val",
    checkpoint: CheckpointOption = "best",
    data: DataOption = None,
    images: ImagesOption = None,
    cache: CacheOption = None,
    out: Out = None,
) -> None:
    """Draw attention over pictures."""
    from triptych.studies.figures.attention_maps import attention_of, draw_attention
    from triptych.studies.figures.query_batch import drawn, known_queries

    benchmark = data_of(run, data, images)
    queries = drawn(known_queries(benchmark, split), count, seed, "attention")
    with opened_runs([run], benchmark, checkpoint, cache) as (opened,):
        found = attention_of(opened, queries)
    note = f"{opened.name} on {benchmark.name}/{split}; queries drawn with seed {seed}."
    drawing = draw_attention(opened, queries, found, words=words, note=note)
    numbers = [{"query": query, "attention": each} for query, each in zip(queries, found, strict=True)]
    write("attention", drawing, out, numbers, note)


def results(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="One to three runs: as in the papers a method, an ablation of it, and another method.",
            show_default=False,
        ),
    ],
    count: Annotated[int, typer.Option(min=1, max=16, help="Queries.")] = 6,
    failures: Annotated[
        int,
        typer.Option(min=0, help="At least so many queries whose target the first run does not put first."),
    ] = 3,
    seed: Seed = 0,
    split: Split = "val",
    checkpoint: CheckpointOption = "best",
    data: DataOption = None,
    images: ImagesOption = None,
    cache: CacheOption = None,
    out: Out = None,
) -> None:
    """Draw sheets of results."""
    from triptych.studies.figures.epoch_curves import run_names
    from triptych.studies.figures.query_batch import known_queries
    from triptych.studies.figures.result_sheets import Sheet, best_pictures, draw_sheet, with_failures

    if len(runs) > 3:
        raise UsageError(f"a sheet has room for three runs, and {len(runs)} are given")
    names, benchmark = run_names(runs), data_of(runs[0], data, images)
    queries = known_queries(benchmark, split)
    words = [query.reference for query in queries], [query.text for query in queries]
    with opened_runs(runs, benchmark, checkpoint, cache) as opened:
        columns = [
            best_pictures(each, queries, each.queries(*words), split, name)
            for name, each in zip(names, opened, strict=True)
        ]
    rows = with_failures(columns[0].target_rank, count, failures, seed)
    sheet = Sheet(tuple(queries), tuple(columns)).only(rows)
    failed = sum(place != 1 for place in sheet.columns[0].target_rank)
    if failed < failures:
        warn(f"{names[0]} fails at {failed} queries only: there are no more failures to show")
    note = (
        f"{benchmark.name}/{split}, {len(queries)} queries; these were drawn with seed {seed}, {failed} failures of"
        f" {names[0]} among them, none picked by hand."
    )
    write("results", draw_sheet(sheet, benchmark.images.load, note=note), out, sheet, note)
