"""``triptych plan``: what a training will take of memory, disk and time, before anything is fetched or run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from triptych.cli.inputs import JsonOption, RecipeOption, SettingsOption
from triptych.cli.settings import merge
from triptych.errors import UsageError
from triptych.files import free_disk, readable_size

if TYPE_CHECKING:
    from triptych.training.plan import Plan

app = typer.Typer(rich_markup_mode="markdown", add_completion=False)

_UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_FASHIONIQ = {"triplets": 18_000, "images": 62_145}
"""Train triplets, and the images of the train and val split files (specification 1.1)."""


@app.command()
def plan(
    backbone: Annotated[str | None, typer.Option(help="The backbone.", show_default="lite")] = None,
    method: Annotated[str | None, typer.Option(help="The method.", show_default="intent")] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=2, help="Triplets a step.", show_default="128")
    ] = None,
    micro_batch: Annotated[
        int | None,
        typer.Option(min=1, help="Triplets at once, with cached contrastive gradients.", show_default="all"),
    ] = None,
    precision: Annotated[str | None, typer.Option(help="no, bf16 or fp16.", show_default="no")] = None,
    checkpointing: Annotated[bool, typer.Option("--gradient-checkpointing", help="Of the Q-Former.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Encode every picture in every step, without the token cache.")
    ] = False,
    bank: Annotated[int, typer.Option(min=0, help="Counterfactuals a reference in the cache.")] = 0,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DATA", help="Its counts.", show_default="those of FashionIQ"),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="What there is, such as 24GB: says what to change.", show_default=False
        ),
    ] = None,
    flops: Annotated[
        float | None,
        typer.Option(help="Operations a second, such as 4e14.", show_default="measured on this machine"),
    ] = None,
    device: Annotated[str, typer.Option(help="cuda or cpu: what the training would run on.")] = "cuda",
    recipe: RecipeOption = None,
    assignments: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict memory, disk and time of a training, without weights: from the sizes in the settings alone.

    Multiply-accumulates and parameters are given both as papers print them (module hooks on one triplet's training
    forward; specification 2.7) and as they are. The time is a lower bound: real steps reach a part of the speed of
    matrix products.

    Example: `triptych plan --backbone blip2 --method intent --batch-size 128 --memory 24GB` says that it does not fit,
    and which settings make it fit.
    """
    given: dict[str, dict[str, Any]] = {
        "backbone": {"name": backbone},
        "method": {"name": method},
        "training": {"batch_size": batch_size, "micro_batch": micro_batch, "precision": precision},
    }
    settings = merge(recipe, given, assignments or ())
    training = settings["training"]
    chosen = str(training.get("precision", training.get("mixed_precision", "no")))
    if chosen not in ("no", "bf16", "fp16"):
        raise UsageError(f'unknown precision "{chosen}"; there are: no, bf16, fp16')
    if device not in ("cuda", "cpu"):
        raise UsageError(f'unknown device "{device}"; there are: cuda, cpu')
    if flops is not None and flops <= 0:
        raise UsageError("--flops must be above 0")
    limit = None if memory is None else _bytes(memory)
    parts = {**settings["backbone"]}
    checkpointed = bool(parts.pop("gradient_checkpointing", False)) or checkpointing
    counts = _counts(data)
    with Console(stderr=True).status("counting passes and shapes"):
        from triptych.training.plan import Options, Planner, epoch_seconds, measured_flops

        options = Options(
            batch_size=int(training.get("batch_size", 128)),
            micro_batch=training.get("micro_batch"),
            precision=chosen,
            checkpointing=checkpointed,
            cached=not live,
            bank=bank,
            device=device,
        )
        planner = Planner({"name": "lite", **parts}, {"name": "intent", **settings["method"]}, options)
        found = planner.plan(limit)
        speed = flops or measured_flops(precision=chosen)
    references = counts["references"] if bank else 0
    entries = counts["images"] + bank * references
    facts = {
        **asdict(found),
        "memory": {**asdict(found.memory), "total": found.memory.total},
        "data": counts,
        "cache_bytes": {kind: size * entries for kind, size in found.token_bytes.items()},
        "flops_a_second": speed,
        "measured": flops is None,
        "epoch_seconds": epoch_seconds(found, counts["triplets"], speed),
        "fits": None if limit is None else found.memory.total <= limit,
    }
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        _print(found, facts, limit)


def _counts(data: Path | None) -> dict[str, int]:
    if data is None:
        return {**_FASHIONIQ, "references": _FASHIONIQ["triplets"]}
    from triptych.triplets import read_benchmark

    benchmark = read_benchmark(data)
    parts = [part for query_sets in benchmark.splits.values() for part in query_sets]
    names = {*benchmark.train.image_ids(), *(name for part in parts for name in part.gallery)}
    names.update(name for part in parts for name in part.queries.column("reference"))
    references = len(set(benchmark.train.column("reference")))
    return {"triplets": len(benchmark.train), "images": len(names), "references": references}


def _bytes(text: str) -> float:
    found = re.fullmatch(r"\s*([\d.]+)\s*((?:[kKMGT]i?)?)B?\s*", text)
    try:
        if found is None:
            raise ValueError
        unit = found[2].replace("K", "k") if found[2] != "Ki" else "Ki"
        return float(found[1]) * _UNITS[{"ki": "Ki"}.get(unit, unit)]
    except (ValueError, KeyError):
        raise UsageError(f"--memory {text}: write a size such as 24GB or 16GiB") from None


def _rows(found: Plan, facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    count = found.parameters
    yield "parameters", f"{count['all'] / 1e6:,.2f} M, {count['trained'] / 1e6:,.2f} M of them trained"
    yield "  as papers print them", f"{count['hooked'] / 1e6:,.2f} M (module hooks)"
    macs = found.gmacs
    yield "a triplet's training forward", f"{macs['training']:,.1f} GMAC"
    yield "  as papers print it", f"{macs['training_hooked']:,.1f} G (module hooks)"
    yield "an inference query", f"{macs['query']:,.1f} GMAC ({macs['query_hooked']:,.1f} by module hooks)"
    yield "", ""
    for name, size in facts["memory"].items():
        yield ("memory of a step" if name == "total" else f"  {name}"), readable_size(size)
    yield "", ""
    for kind, size in facts["cache_bytes"].items():
        yield (
            f"token cache, {kind}",
            f"{readable_size(size)} ({readable_size(found.token_bytes[kind])} an image)",
        )
    how = "measured here" if facts["measured"] else "given"
    yield (
        "an epoch, at least",
        f"{_time(facts['epoch_seconds'])} at {facts['flops_a_second']:.2g} FLOP/s ({how})",
    )


def _print(found: Plan, facts: dict[str, Any], limit: float | None) -> None:
    console = Console(highlight=False)
    table = Table("", "", box=box.SIMPLE, show_header=False)
    for name, value in _rows(found, facts):
        table.add_row(escape(name), escape(value))
    console.print(table)
    data = facts["data"]
    console.print(f"for {data['triplets']:,} triplets and {data['images']:,} images", style="dim")
    if advice := _disk_advice(facts):
        console.print(f"[yellow]disk[/]: {escape(advice)}", soft_wrap=True)
    if limit is None:
        return
    if facts["fits"]:
        console.print(f"[green]fits[/] into {readable_size(limit)}")
        return
    console.print(
        f"[red]does not fit[/] into {readable_size(limit)}; change, one after another:", soft_wrap=True
    )
    for what, left in found.advice:
        verdict = "fits" if left <= limit else "not yet"
        console.print(f"  {escape(what)}: {readable_size(left)}, {verdict}", soft_wrap=True)
    if not found.advice or found.advice[-1][1] > limit:
        console.print("  then it still does not fit: take a smaller backbone, or more memory", soft_wrap=True)


def _disk_advice(facts: dict[str, Any]) -> str | None:
    """Say what to do where the token cache is larger than the free disk."""
    from triptych.backbones.feature_store import cache_root

    free = free_disk(cache_root())
    if facts["cache_bytes"]["float16"] <= free:
        return None
    int8 = facts["cache_bytes"]["int8"]
    mend = "int8 tokens fit (--set training.cache_dtype=int8)" if int8 <= free else "nor do int8 tokens fit"
    return f"the token cache does not fit on the disk ({readable_size(free)} free at {cache_root()}); {mend}"


def _time(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
