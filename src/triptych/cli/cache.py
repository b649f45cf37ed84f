"""``triptych cache``: build, describe and verify the cache of image tokens."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from triptych.cli.inputs import JsonOption, RecipeOption, SettingsOption
from triptych.cli.progress import stages, warn
from triptych.cli.settings import merge
from triptych.errors import UsageError
from triptych.files import readable_size
from triptych.triplets import read_benchmark

app = typer.Typer(
    help="Build, describe and verify the cache of image tokens.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)

CacheFolder = Annotated[
    Path | None,
    typer.Option(
        "--cache", metavar="FOLDER", help="The cache's folder.", show_default="below the user's cache folder"
    ),
]
BackboneName = Annotated[str | None, typer.Option("--backbone", help="Whose tokens.", show_default="lite")]


@app.command()
def build(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The data set.", show_default=False)],
    backbone: BackboneName = None,
    dtype: Annotated[
        str, typer.Option(help="float16, or int8: about half the size, one scale a channel and image.")
    ] = "float16",
    bank: Annotated[
        int,
        typer.Option(
            min=0, help="Also this many counterfactuals of each reference, for method.counterfactual_bank."
        ),
    ] = 0,
    recipe: RecipeOption = None,
    assignments: SettingsOption = None,
    images: Annotated[
        Path | None,
        typer.Option("--images", help="Where the pictures are, if not beside the data.", show_default=False),
    ] = None,
    cache: CacheFolder = None,
) -> None:
    """Encode every picture of a data set once, so that training and evaluation need not.

    Stop it at any time: the next build goes on from there. Several builds at once, also of several processes on
    one machine, split the work. The free disk is compared with what is needed before anything is written.
    """
    settings = merge(recipe, {"backbone": {"name": backbone}, "data": {}}, assignments or ())
    benchmark = read_benchmark(data, images=images)
    warn(*benchmark.warnings)
    from triptych.backbones.registry import create_backbone
    from triptych.backbones.token_cache import TokenCache

    model = create_backbone({"name": "lite", **settings["backbone"]})
    tokens = TokenCache(model, cache, dtype)
    before = len(tokens)
    with stages() as bars:
        from triptych.training.build_cache import build_cache

        build_cache(tokens, benchmark, model, bank=bank, method=settings["method"], stages=bars)
    console = Console(highlight=False)
    console.print(f"{len(tokens) - before:,} encoded, {before:,} were there", soft_wrap=True)
    _print(_facts(tokens.folder))


@app.command()
def info(
    backbone: BackboneName = None,
    assignments: SettingsOption = None,
    cache: CacheFolder = None,
    as_json: JsonOption = False,
) -> None:
    """Describe the caches: images, bytes, backbone, preprocessing, dtype, shards, free disk.

    Without `--cache` or `--backbone` it lists all caches of image tokens of this user.
    """
    found = [_facts(folder) for folder in _folders(backbone, assignments, cache)]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    if not found:
        Console(highlight=False).print("there is no cache yet; `triptych cache build DATA` makes one")
    for facts in found:
        _print(facts)


@app.command()
def verify(
    backbone: BackboneName = None,
    assignments: SettingsOption = None,
    cache: CacheFolder = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Drop the bad shards; the next build makes them again.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Read every shard again, and compare each entry with its checksum.

    Exit code: 0 where all is as it was written, or was repaired; 1 where something is not.
    """
    from triptych.backbones.cache_check import check_store, repair_store

    results: list[dict[str, Any]] = []
    for folder in _folders(backbone, assignments, cache):
        with stages(quiet=as_json) as bars:
            reports = check_store(folder, partial(bars, f"shards of {folder.name}"))
        bad = {f"{report.number:05d}": report.problems for report in reports if report.problems}
        dropped = repair_store(folder, reports) if repair else []
        results.append(
            {
                "folder": str(folder),
                "shards": len(reports),
                "entries": sum(report.entries for report in reports),
                "bad": bad,
                "dropped": [f"{number:05d}" for number in dropped],
            }
        )
    if as_json:
        typer.echo(json.dumps(results, indent=2))
    else:
        _print_verified(results, repaired=repair)
    raise typer.Exit(1 if any(result["bad"] for result in results) and not repair else 0)


def _folders(backbone: str | None, assignments: list[str] | None, cache: Path | None) -> list[Path]:
    """Return the folders that are meant: the one named, a backbone's, or all."""
    if cache is not None:
        if backbone or assignments:
            raise UsageError("--cache names a folder: leave out --backbone and --set")
        return [cache]
    from triptych.backbones.feature_store import META, cache_root

    root = cache_root() / "tokens"
    if backbone is None and not assignments:
        return sorted(path.parent for path in root.glob(f"*/{META}"))
    settings = merge(None, {"backbone": {"name": backbone}}, assignments or ())
    from triptych.backbones.registry import create_backbone
    from triptych.backbones.token_cache import default_folder

    fingerprint = create_backbone({"name": "lite", **settings["backbone"]}).fingerprint
    folders = [default_folder(fingerprint, dtype) for dtype in ("float16", "int8")]
    return [folder for folder in folders if (folder / META).is_file()]


def _facts(folder: Path) -> dict[str, Any]:
    """Collect what there is to say of a cache."""
    from triptych.backbones.cache_check import open_shards
    from triptych.backbones.feature_store import read_meta
    from triptych.training.bank import read_banks

    shards = open_shards(folder)
    meta = read_meta(folder)
    for shard in shards:
        shard.load()
    banks = read_banks(folder)
    derived = sum(bank["entries"] for bank in banks)
    entries = sum(map(len, shards))
    about = dict(meta.get("about") or {})
    return {
        "folder": str(folder),
        "images": entries - derived,
        "banks": banks,
        "bytes": sum(shard.size for shard in shards),
        "backbone": about.get("backbone"),
        "encoder": meta["encoder"],
        "preprocessing": about.get("preprocessing"),
        "image_size": about.get("image_size"),
        "dtype": meta["dtype"],
        "shards": len(shards),
        "free_disk": shutil.disk_usage(folder).free,
    }


def _print(facts: dict[str, Any]) -> None:
    console = Console(highlight=False)
    table = Table("", "", box=box.SIMPLE, show_header=False)
    size = f", {facts['image_size']} px" if facts["image_size"] else ""
    rows = {
        "folder": facts["folder"],
        "images": f"{facts['images']:,}",
        **{
            f"counterfactuals of {bank['references']:,} references": f"{bank['variants']} each ({bank['recipe']})"
            for bank in facts["banks"]
        },
        "size": readable_size(facts["bytes"]),
        "backbone": f"{facts['backbone'] or 'not said'} ({facts['encoder']})",
        "preprocessing": f"{facts['preprocessing'] or 'not said'}{size}",
        "dtype": facts["dtype"],
        "shards": str(facts["shards"]),
        "free disk": readable_size(facts["free_disk"]),
    }
    for name, value in rows.items():
        table.add_row(name, escape(value))
    console.print(table)


def _print_verified(results: list[dict[str, Any]], *, repaired: bool) -> None:
    console = Console(highlight=False)
    if not results:
        console.print("there is no cache yet")
    for result in results:
        where = escape(result["folder"])
        for shard, problems in result["bad"].items():
            for problem in problems:
                console.print(f"[red]bad[/] shard {shard} of {where}: {escape(problem)}", soft_wrap=True)
        if not result["bad"]:
            good = f"{result['entries']:,} entries in {result['shards']} shards are as they were written"
            console.print(f"[green]ok[/] {where}: {good}", soft_wrap=True)
        elif repaired:
            console.print(f"dropped {len(result['dropped'])} shards; build again", soft_wrap=True)
        else:
            mend = f"Drop them with: triptych cache verify --cache {where} --repair"
            console.print(mend, soft_wrap=True)
