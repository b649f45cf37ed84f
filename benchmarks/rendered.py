"""Is the rendered benchmark hard enough? Train on it and score the composition, the picture alone, the text alone.

    python benchmarks/rendered.py --work runs/rendered

Prints R@10 of all three, and whether each half is at most half of the composition. Finished parts are kept.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from triptych.evaluation import Evaluation


def triptych(*arguments: str | Path) -> None:
    """Run a verb, show its command, and fail if it fails."""
    words = [str(argument) for argument in arguments]
    print("triptych", *words, file=sys.stderr, flush=True)
    environment = {"OMP_WAIT_POLICY": "passive", **os.environ}
    subprocess.run([sys.executable, "-m", "triptych.cli.main", *words], check=True, env=environment)


def main() -> None:
    """Draw, align, train, score and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("runs/rendered"))
    parser.add_argument("--train", default="4000")
    parser.add_argument("--val", default="800")
    parser.add_argument("--epochs", default="8")
    options = parser.parse_args()
    data, aligned, run = (options.work / name for name in ("data", "aligned", "infonce"))
    report = options.work / "evaluation.json"
    if not data.is_dir():
        triptych("data", "render", data, "--train", options.train, "--val", options.val)
    if not (aligned / "model.safetensors").is_file():
        triptych(
            "align", data, "--captions", data / "captions.csv", "-o", aligned,
            "--set", "batch_size=64", "--set", "identity=1",
        )  # fmt: skip
    if not (run / "last" / "model.safetensors").is_file():
        triptych(
            "train", "--data", data, "--method", "infonce", "--init", aligned, "-o", run,
            "--epochs", options.epochs, "--set", "training.captions=fixed", "--set", "training.patience=0",
        )  # fmt: skip
    triptych("evaluate", run, "--data", data, "--protocol", "reference-removed", "--json", report)

    result = Evaluation.read(report)
    composed = result.row("composed", "removed").mean["R@10"]
    print(f"R@10, reference removed: composed {composed:.1f}")
    for half in ("image-only", "text-only"):
        value = result.row(half, "removed").mean["R@10"]
        verdict = "at most" if 2 * value <= composed else "over"
        print(f"  {half} {value:.1f} = {value / composed:.2f} of it ({verdict} half)")


if __name__ == "__main__":
    main()
