"""How well the audit finds wrong triplets of fashion-products, beside plainer ways; what it recovers; what it costs.

    python benchmarks/audit.py DATA --init ALIGNED --work runs/audit [--noise mix-0.2 ...] [--recover mix-0.5]

DATA is fashion-products, with noise/KIND-RATE-seed42.json and attributes. Each audit is kept in WORK and gone on with;
WORK/audit.md is written after each. Baselines: a random score; the similarity of the annotated pair by the aligned
model; the last epoch's loss of a plain InfoNCE run on the same noisy triplets (its cleanliness, which falls as the
loss in the batch rises); a mixture of two Gaussians on that loss (TME's way); and the cleanliness of other methods'
runs, which are given by --run LEVEL:METHOD=FOLDER.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from triptych.audit import Audit, audit
from triptych.audit.attributes import Attributes, score_proposals, still_right
from triptych.audit.embed import Embedder
from triptych.audit.score import score_audit
from triptych.backbones.token_cache import TokenCache
from triptych.evaluation import REFERENCE_REMOVED
from triptych.evaluation.detection import detection
from triptych.files import atomic_write, write_json
from triptych.noise import NoiseManifest
from triptych.objectives.mixture import fit_mixture
from triptych.training.cleanliness import read_cleanliness
from triptych.training.evaluate import evaluate
from triptych.training.model import load_model
from triptych.training.run import Run
from triptych.training.train import train
from triptych.triplets import Benchmark, TripletTable, read_benchmark

NOISE = ("mix-0.2", "mix-0.5", "mix-0.8", "hard-0.2", "hard-0.5")
TRAINING: dict[str, Any] = {"epochs": 5, "patience": 0, "captions": "fixed"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--init", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--noise", nargs="*", default=list(NOISE), help='manifests by name, or "none"')
    parser.add_argument(
        "--recover", nargs="*", default=[], help="levels at which R@10 is compared: mix-0.5 none"
    )
    parser.add_argument("--run", action="append", default=[], metavar="LEVEL:METHOD=FOLDER")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="settings of the audit, as JSON"
    )
    options = parser.parse_args()
    settings = {key: json.loads(value) for key, _, value in (text.partition("=") for text in options.set)}
    benchmark = read_benchmark(options.data)
    lines: list[str] = [
        "| noise | score | AUROC | AP | P@1 % | P@5 % | P@10 % | R at P 0.9 | rate said / true | Brier | corner |"
        " right target in five | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    recovered: list[str] = []
    for level in [*options.noise, *(name for name in options.recover if name not in options.noise)]:
        noise = (
            None
            if level == "none"
            else NoiseManifest.read(options.data / f"noise/{level}-seed42.json", benchmark.train)
        )
        started = time.monotonic()
        found = audit(
            benchmark,
            folder=options.work / level,
            noise=noise,
            init=options.init,
            settings=settings,
            stages=_told,
        )
        seconds = time.monotonic() - started
        plain = _plain_run(benchmark, noise, options.init, options.work / "plain" / level)
        given = dict(
            text.partition(":")[2].split("=", 1) for text in options.run if text.startswith(f"{level}:")
        )
        if noise is not None:
            lines += list(_rows(level, found, noise, benchmark, options, plain, given, seconds))
        else:
            wrong = found.summary["wrong"]
            flagged = found.summary["flagged"]
            said = f"{wrong['share']:.3f} / 0 | - | flagged {flagged} | - | {seconds:.0f} |"
            lines.append(f"| none | audit | - | - | - | - | - | - | {said}")
        if level in options.recover:
            recovered += ["", *_recovered(level, benchmark, found, noise, plain, options)]
        with atomic_write(options.work / "audit.md") as file:
            file.write("\n".join([*lines, *recovered]) + "\n")
        print("\n".join([*lines, *recovered]))


def _rows(
    level: str,
    found: Audit,
    noise: NoiseManifest,
    benchmark: Benchmark,
    options: argparse.Namespace,
    plain: Run,
    given: dict[str, str],
    seconds: float,
) -> Iterator[str]:
    labels = Attributes.read(options.data)
    excused = still_right(benchmark.train, noise, labels)
    figures = score_audit(found.verdicts, noise)
    by_labels = score_audit(found.verdicts, noise, excused=excused)
    proposed = score_proposals(found.verdicts, benchmark.train, noise, labels)
    write_json(
        options.work / f"{level}.json",
        {**figures, "by_attributes": by_labels, **proposed, "seconds": seconds},
    )
    right = proposed["right_target_proposed"]["share"]
    for name, each in (("**audit**", figures), ("audit, by attributes", by_labels)):
        precision = " | ".join(f"{value:.3f}" for value in each["precision_at"].values())
        corner = "-" if each["corner_accuracy"] is None else f"{each['corner_accuracy']:.3f}"
        yield (
            f"| {level} | {name} | {each['auroc']:.3f} | {each['average_precision']:.3f} | {precision} | "
            f"{each['recall_at_90_precision']:.3f} | {each['estimated_rate']:.3f} / {each['true_rate']:.3f} | "
            f"{each['brier']:.3f} | {corner} | {'-' if right is None else f'{right:.3f}'} | {seconds:.0f} |"
        )
    ids = found.table.triplet_ids
    baselines = {
        "random": (ids, np.random.default_rng(0).random(len(ids))),
        "similarity, aligned model": (ids, _similarity(found.table, benchmark, options.init)),
        "last epoch's loss (InfoNCE)": read_cleanliness(plain.cleanliness),
        "mixture on that loss": _mixture(plain),
        **{
            f"cleanliness of {name}": read_cleanliness(Path(path) / "cleanliness.parquet")
            for name, path in given.items()
        },
    }
    for name, (rows, values) in baselines.items():
        score = detection(rows, values, noise.noisy_ids)
        figures_of = f"{score.auroc:.3f} | {score.average_precision:.3f}"
        yield f"| {level} | {name} | {figures_of} | - | - | - | - | - | - | - | - | - |"


def _similarity(table: TripletTable, benchmark: Benchmark, init: Path) -> np.ndarray:
    """Score each annotated pair by a model that saw no triplet."""
    from triptych.audit.corpus import Corpus

    model, corpus = load_model(init), Corpus(table)
    cache = TokenCache(model.backbone)
    keys = cache.add_images(benchmark.images, corpus.images, model.backbone)
    embedder = Embedder(model, cache, keys, corpus.images, corpus.texts)
    queries = embedder.queries(corpus.rows.reference, corpus.rows.text)
    targets = embedder.images[corpus.rows.target]
    return (targets @ queries[:, :, None]).squeeze(2).amax(dim=1).numpy()


def _mixture(run: Run) -> tuple[list[str], np.ndarray]:
    import torch

    ids, values = read_cleanliness(run.cleanliness)
    losses = torch.from_numpy(-np.log(np.clip(values, 1e-6, 1)))
    return ids, fit_mixture(losses, seed=0).clean.numpy()


def _plain_run(benchmark: Benchmark, noise: NoiseManifest | None, init: Path, folder: Path) -> Run:
    if (folder / "last" / "model.safetensors").is_file():
        return Run(folder)
    return train(benchmark, folder, method="infonce", noise=noise, init=init, training=TRAINING)


def _recovered(
    level: str,
    benchmark: Benchmark,
    found: Audit,
    noise: NoiseManifest | None,
    plain: Run,
    options: argparse.Namespace,
) -> Iterator[str]:
    """Compare R@10 of InfoNCE on clean, noisy, audited, and truly clean triplets, all for as many steps."""
    tables = {
        "audited and dropped": found.apply("drop"),
        "audited, fixed where there is a proposal, else dropped": found.apply("fix", "drop"),
    }
    if noise is not None:
        right = [row for row, name in enumerate(found.table.triplet_ids) if name not in noise.noisy_ids]
        tables["the right ones alone (a perfect filter)"] = found.table.take(right)
    runs = {"clean": _plain_run(benchmark, None, options.init, options.work / "plain" / "none")}
    if noise is not None:
        runs[level] = plain
    rows = dict.fromkeys(runs, len(benchmark.train))
    for number, (name, table) in enumerate(tables.items()):
        folder = options.work / "recovered" / f"{level}-{number}"
        data = Benchmark(benchmark.name, benchmark.path, table, benchmark.splits, benchmark.images)
        epochs = max(1, round(TRAINING["epochs"] * len(benchmark.train) / len(table)))
        done = (folder / "last" / "model.safetensors").is_file()
        settings = {**TRAINING, "epochs": epochs}
        run = (
            train(data, folder, method="infonce", init=options.init, training=settings) if not done else None
        )
        runs[name], rows[name] = run or Run(folder), len(table)
    recall: dict[str, float] = {}
    for name, run in runs.items():
        scores: Any = evaluate(run, benchmark, protocol=REFERENCE_REMOVED, checkpoint="last", samples=0)
        recall[name] = scores.row("composed", "removed").mean["R@10"]
    lost = recall["clean"] - recall.get(level, recall["clean"])
    yield f"| {level}: training data | triplets | R@10, reference removed, last epoch | of what noise took |"
    yield "|---|---|---|---|"
    for name, value in recall.items():
        back = f"{(value - recall[level]) / lost:.0%}" if lost > 0 and name not in ("clean", level) else "-"
        yield f"| {name} | {rows[name]:,} | {value:.1f} | {back} |"


def _told(what: str, done: int, total: int) -> None:
    if done == total:
        print(f"{time.strftime('%H:%M:%S')} {what}: {total:,}", flush=True)


if __name__ == "__main__":
    main()
