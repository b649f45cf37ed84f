"""Train on fashion-products with and without noise, and write the table of docs/results.md.

    python benchmarks/fashion_products.py --work runs/fashion-products --jobs 2

Cells are (method, noise); each is a run folder, so the script can be stopped and started again. ``oracle`` trains
on the truly clean half of mix 0.5 only (``--drop-noisy``): what a perfect filter would reach. The data are read from
``$TRIPTYCH_SHARED/data/fashion-products`` (default ``../shared``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from triptych.evaluation import Evaluation

METHODS = ("infonce", "rcl", "intent")
CELLS = ("mix 0", "mix 0.5", "oracle 0.5")
SETTINGS: dict[str, tuple[str, ...]] = {"intent": ("--set", "method.counterfactual_bank=4")}


def triptych(*arguments: str | Path) -> None:
    """Run a verb in its own process, one thread each, and fail if it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    subprocess.run(
        [sys.executable, "-m", "triptych.cli.main", *map(str, arguments)],
        check=True,
        env=environment,
        stdout=subprocess.DEVNULL,
    )


def cell(
    work: Path, data: Path, method: str, name: str, epochs: int, seed: int
) -> tuple[str, str, dict[str, Any]]:
    """Train and score one cell, or read what is there."""
    folder = work / f"{method}-{name.replace(' ', '-')}-seed{seed}"
    seconds = folder / "seconds.json"
    started = time.monotonic()
    if not (folder / "last" / "model.safetensors").is_file():
        if (folder / "config.json").is_file():
            triptych("train", "--resume", folder)
        else:
            noise: tuple[str | Path, ...] = ()
            if name != "mix 0":
                noise = ("--noise", data / "noise" / "mix-0.5-seed42.json")
            if name.startswith("oracle"):
                noise += ("--drop-noisy",)
            triptych(
                "train", "--data", data, "--method", method, "--init", work / "aligned", *noise, "-o", folder,
                "--epochs", str(epochs), "--seed", str(seed), "--set", "training.patience=0", *SETTINGS.get(method, ()),
            )  # fmt: skip
        seconds.write_text(json.dumps(time.monotonic() - started))
    figures: dict[str, Any] = {"seconds": json.loads(seconds.read_text()) if seconds.is_file() else None}
    for checkpoint in ("best", "last"):
        path = folder / f"evaluation-{checkpoint}.json"
        if not path.is_file():
            triptych(
                "evaluate", folder, "--data", data, "--checkpoint", checkpoint,
                "--protocol", "reference-removed", "--json", path, *(("--no-context",) if checkpoint == "last" else ()),
            )  # fmt: skip
        figures[checkpoint] = Evaluation.read(path)
    print(f"{method:8} {name:10} done after {time.monotonic() - started:.0f} s", file=sys.stderr)
    return method, name, figures


def table(results: list[tuple[str, str, dict[str, Any]]]) -> str:
    """Write the Markdown table."""
    lines = [
        "| training data | method | R@10 best epoch | R@10 last epoch | R@50 best | mAP@10 best "
        "| reference kept, R@10 best | image-only | text-only |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in CELLS:
        for method in METHODS:
            for found_method, found_name, figures in results:
                if (found_method, found_name) != (method, name):
                    continue
                best, last = figures["best"], figures["last"]
                row, end = best.row("composed", "removed"), last.row("composed", "removed")
                low, high = row.intervals["R@10"]
                lines.append(
                    f"| {name} | `{method}` | **{row.mean['R@10']:.1f}** [{low:.1f}, {high:.1f}] (epoch "
                    f"{best.model.epoch}) | {end.mean['R@10']:.1f} (epoch {last.model.epoch}) | "
                    f"{row.mean['R@50']:.1f} | {row.mean['mAP@10']:.1f} | "
                    f"{best.row('composed', 'kept').mean['R@10']:.1f} | "
                    f"{best.row('image-only', 'removed').mean['R@10']:.1f} | "
                    f"{best.row('text-only', 'removed').mean['R@10']:.1f} |"
                )
    return "\n".join(lines)


def main() -> None:
    """Run the grid and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("runs/fashion-products"))
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="cells at once, one thread each")
    options = parser.parse_args()
    data = Path(os.environ.get("TRIPTYCH_SHARED", "../shared")) / "data" / "fashion-products"
    options.work.mkdir(parents=True, exist_ok=True)
    if not (options.work / "aligned" / "model.safetensors").is_file():
        triptych(
            "align", data, "--captions", data / "attributes.csv", "--caption-column", "name",
            "-o", options.work / "aligned",
        )  # fmt: skip
    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = [
            pool.submit(cell, options.work, data, method, name, options.epochs, options.seed)
            for name in CELLS
            for method in reversed(METHODS)
        ]
        results = [future.result() for future in waiting]
    print(table(results))


if __name__ == "__main__":
    main()
