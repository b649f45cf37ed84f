"""Commands of ``triptych figure`` that draw charts of numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from triptych.cli.figure_options import (
    Metric,
    OneRun,
    Out,
    Results,
    Runs,
    Seed,
    Side,
    Split,
    opened_runs,
    results_of,
    write,
)
from triptych.cli.inputs import CacheOption, CheckpointOption, DataOption, ImagesOption, data_of
from triptych.cli.progress import warn


def learning(
    runs: Runs,
    metric: Annotated[str, typer.Option(help="Such as R@10, or loss.")] = "R@10",
    reference: Annotated[
        Literal["kept", "removed"], typer.Option(help="With the reference in the gallery or out of it.")
    ] = "kept",
    out: Out = None,
) -> None:
    """Draw learning curves."""
    from triptych.studies.figures.epoch_curves import draw_validation_curves, validation_curves

    curves = validation_curves(runs, metric, reference)
    write(
        "learning", draw_validation_curves(curves, metric, reference), out, {"metric": metric, "runs": curves}
    )


def sensitivity(
    runs: Results,
    setting: Annotated[str, typer.Option(help="Such as method.omega or training.batch_size.")],
    metric: Metric = "R@10",
    reference: Side = None,
    checkpoint: CheckpointOption = "best",
    out: Out = None,
) -> None:
    """Draw a metric over a setting."""
    from triptych.studies.figures.result_lines import draw_sensitivity
    from triptych.studies.figures.result_lines import sensitivity as over_setting

    results = results_of(runs, checkpoint)
    side = reference or results[0].evaluation.protocol.headline
    lines, names = over_setting(results, setting, metric, side)
    drawing = draw_sensitivity(lines, names, setting, metric, side)
    numbers = {"setting": setting, "metric": metric, "reference": side, "names": names, "lines": lines}
    write("sensitivity", drawing, out, numbers)


def retention(
    runs: Results,
    metric: Metric = "R@10",
    reference: Side = None,
    checkpoint: CheckpointOption = "best",
    out: Out = None,
) -> None:
    """Draw retention over noise."""
    from triptych.studies.figures.result_lines import draw_retention, noise_table
    from triptych.studies.figures.result_lines import retention as over_noise

    results = results_of(runs, checkpoint)
    side = reference or results[0].evaluation.protocol.headline
    table = noise_table(results, metric, side)
    lines = over_noise(table)
    if left_out := [method for method in table.values if method not in lines]:
        warn(f"left out, for there is no run on clean triplets: {', '.join(left_out)}")
    numbers = {"metric": metric, "reference": side, "table": table, "retention": lines}
    write("retention", draw_retention(lines, table, metric, side), out, numbers)


def noise_ranks(
    runs: Results,
    metric: Metric = "R@10",
    reference: Side = None,
    checkpoint: CheckpointOption = "best",
    out: Out = None,
) -> None:
    """Draw ranks of methods over noise; runs of several data sets make a panel each."""
    from triptych.studies.figures.result_lines import draw_method_ranks, method_ranks, noise_tables

    tables = noise_tables(results_of(runs, checkpoint), metric, reference)
    note = (
        f"The reference is {reference}." if reference else "The reference is as in each protocol's headline."
    )
    ranks = {name: method_ranks(table) for name, table in tables.items()}
    numbers = {"metric": metric, "tables": tables, "ranks": ranks}
    write("noise-ranks", draw_method_ranks(tables, metric, note=note), out, numbers, note)


def trusted(
    runs: Runs,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Trust what has at least this value.", show_default="ConeSep's ω, else 0.5"
        ),
    ] = None,
    out: Out = None,
) -> None:
    """Draw purity and recall of the trusted set."""
    from triptych.studies.figures.epoch_curves import run_names
    from triptych.studies.figures.trusted_set import draw_trusted_sets, trusted_set

    sets = {name: trusted_set(folder, threshold) for name, folder in zip(run_names(runs), runs, strict=True)}
    note = "As recorded in training, each triplet when its batch was learned from. The truth is the noise manifest's."
    write("trusted", draw_trusted_sets(sets, note=note), out, sets, note)


def negative_cosine(
    runs: Runs,
    split: Split = "val",
    checkpoint: CheckpointOption = "best",
    data: DataOption = None,
    images: ImagesOption = None,
    cache: CacheOption = None,
    out: Out = None,
) -> None:
    """Draw the histogram of cos(c, n)."""
    from triptych.studies.figures.epoch_curves import run_names
    from triptych.studies.figures.negative_cosine import (
        cosine_histogram,
        draw_negative_cosines,
        negative_cosines,
    )
    from triptych.studies.figures.query_batch import known_queries

    names, benchmark = run_names(runs), data_of(runs[0], data, images)
    histograms = {}
    with opened_runs(runs, benchmark, checkpoint, cache) as opened:
        for each in opened:
            each.conesep("the cosine with the negative query")
        queries = known_queries(benchmark, split)
        for name, each in zip(names, opened, strict=True):
            histograms[name] = cosine_histogram(negative_cosines(each, queries))
    note = f"Queries of {benchmark.name}/{split}; the same negation stands before every text."
    write("negative-cosine", draw_negative_cosines(histograms, note=note), out, histograms, note)


def loyalty_ranks(
    run: OneRun,
    plain: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="The run whose similarity is on the left: one trained with --ablate intent.A5, as in the paper.",
            show_default="the same run",
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=2, max=256, help="Queries of the batch.")] = 64,
    seed: Seed = 0,
    split: Split = "val",
    checkpoint: CheckpointOption = "best",
    data: DataOption = None,
    images: ImagesOption = None,
    cache: CacheOption = None,
    out: Out = None,
) -> None:
    """Draw the ranks of right answers by similarity and by loyalty."""
    from triptych.studies.figures.batch_scores import (
        answer_ranks,
        batch_loyalty,
        batch_similarity,
        draw_answer_ranks,
        loyalty_temperature,
    )
    from triptych.studies.figures.query_batch import known_queries, one_batch

    benchmark = data_of(run, data, images)
    queries = one_batch(known_queries(benchmark, split), batch, seed)
    with opened_runs([run, plain or run], benchmark, checkpoint, cache) as (full, other):
        temperature = loyalty_temperature(full)
        left = answer_ranks(batch_similarity(other, queries), "similarity")
        degrees = batch_loyalty(batch_similarity(full, queries), temperature)
        right = answer_ranks(degrees, "loyalty")
    note = (
        f"{len(queries)} queries of {benchmark.name}/{split} with {len(queries)} targets, drawn with seed {seed}."
        f" Loyalty (temperature {temperature:g}) knows which pair is annotated, and rewards it where it beats"
        " its rivals."
    )
    drawing = draw_answer_ranks((other.name, left), (full.name, right), note=note)
    numbers = {"left": {"run": other.name, **vars(left)}, "right": {"run": full.name, **vars(right)}}
    write("loyalty-ranks", drawing, out, numbers, note)


def similarity(
    runs: Runs,
    batch: Annotated[int, typer.Option(min=2, max=256, help="Queries of the batch.")] = 64,
    seed: Seed = 0,
    split: Split = "val",
    checkpoint: CheckpointOption = "best",
    data: DataOption = None,
    images: ImagesOption = None,
    cache: CacheOption = None,
    out: Out = None,
) -> None:
    """Draw heat maps of similarity."""
    from triptych.studies.figures.batch_scores import batch_similarity, draw_score_matrices, score_matrix
    from triptych.studies.figures.epoch_curves import run_names
    from triptych.studies.figures.query_batch import known_queries, one_batch

    names, benchmark = run_names(runs), data_of(runs[0], data, images)
    queries = one_batch(known_queries(benchmark, split), batch, seed)
    with opened_runs(runs, benchmark, checkpoint, cache) as opened:
        matrices = {
            name: score_matrix(batch_similarity(each, queries))
            for name, each in zip(names, opened, strict=True)
        }
    note = (
        f"{len(queries)} queries of {benchmark.name}/{split} with {len(queries)} targets, drawn with seed {seed};"
        " right pairs are on the diagonal. One scale of colours for all."
    )
    write("similarity", draw_score_matrices(matrices, note=note), out, matrices, note)
