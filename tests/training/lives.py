"""Live through a run several times over: train, get killed, resume, in a process of its own each time.

``python lives.py PLAN.json`` reads a list of runs: data, folder, cache, settings, and a list of lives. A life says
how it ends, and each is a child that starts from a process that never trained:

- ``{}``: not at all, the run finishes
- ``{"step": n}``: kill -9 after its n-th step
- ``{"seconds": s}``: kill -9 s seconds after its first step, wherever it is then
- ``{"in": "validation" | "best" | "checkpoint", "time": n}``: kill -9 in the n-th one of these, half-way
- ``{"ctrl_c": n}``: through the command line, interrupted after its n-th step

Prints for each run a JSON list of exit codes (negative: the signal that ended it).
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import accelerate.optimizer  # noqa: F401 (imported once, here)
import safetensors.torch

from triptych.backbones import lite
from triptych.backbones.registry import create_backbone
from triptych.cli.main import main as command_line
from triptych.training.evaluate import SplitEvaluator
from triptych.training.loop import Watcher
from triptych.training.run import Run
from triptych.training.train import resume, train
from triptych.triplets import read_benchmark


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_time(number: int, action: Callable[[], None]) -> Callable[[], None]:
    """Do ``action`` in the n-th call."""
    calls = count(1)
    return lambda: action() if next(calls) == number else None


def arrange(life: dict[str, Any]) -> Watcher:
    """Arrange a death in this process."""
    if "step" in life:
        tick = at_time(life["step"], die)
        return Watcher(on_step=lambda step: tick())
    if "seconds" in life:

        def end() -> None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # as final as a kill: nothing can catch it
            signal.setitimer(signal.ITIMER_REAL, life["seconds"])

        tick = at_time(1, end)
        return Watcher(on_step=lambda step: tick())
    place, tick = life.get("in"), at_time(life.get("time", 1), die)
    if place == "validation":
        targets = SplitEvaluator._targets
        patch.object(SplitEvaluator, "_targets", lambda *given: (tick(), targets(*given))[1]).start()
    elif place:
        save = safetensors.torch.save_file

        def half(tensors: Any, path: Any, metadata: Any) -> None:
            """Write the file, then cut it to half and die."""
            save(tensors, path, metadata=metadata)
            if place in str(path):
                os.truncate(path, os.path.getsize(path) // 2)
                tick()
                save(tensors, path, metadata=metadata)

        patch.object(safetensors.torch, "save_file", half).start()
    return Watcher()


def live(plan: dict[str, Any], life: dict[str, Any]) -> None:
    folder = Path(plan["folder"])
    if "ctrl_c" in life:
        press = at_time(life["ctrl_c"], lambda: os.kill(os.getpid(), signal.SIGINT))
        log = Run.log
        patch.object(Run, "log", lambda run, entry: (log(run, entry), press())[0]).start()
        sys.argv = ["triptych", "train", "--resume", str(folder)]
        command_line()
    watcher = arrange(life)
    if (folder / "config.json").is_file():
        resume(folder, watcher=watcher)
    else:
        train(plan["data"], folder, watcher=watcher, **plan["settings"])


def prepare(data: str) -> None:
    """Load the frozen towers once, before the first child, and import what each child would import again."""
    read_benchmark(data)
    loaded = create_backbone({"name": "lite"})
    patch.object(lite, "load_efficientnet_lite0", lambda path: loaded.trunk).start()
    patch.object(lite, "MiniLMStates", lambda path: loaded.minilm).start()


def main() -> None:
    plans = json.loads(Path(sys.argv[1]).read_text())
    prepare(plans[0]["data"])
    for plan in plans:
        os.environ["TRIPTYCH_CACHE"] = plan["cache"]
        codes = []
        for life in plan["lives"]:
            child = os.fork()
            if child == 0:
                try:
                    live(plan, life)
                except SystemExit as end:
                    os._exit(int(end.code or 0))
                except BaseException as error:
                    print(repr(error), file=sys.stderr, flush=True)
                    os._exit(1)
                os._exit(0)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(json.dumps(codes))


if __name__ == "__main__":
    main()
