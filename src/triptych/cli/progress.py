"""Progress on standard error, so that what a command prints stays clean; a bar for each stage of the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

if TYPE_CHECKING:
    from triptych.evaluation import Evaluation
    from triptych.training.loop import Step, Watcher


class Stages:
    """Bars by name: called with (what is being done, done, total), it adds a bar when a name is new.

    Args:
        bars: where they are drawn.
    """

    def __init__(self, bars: Progress) -> None:
        self.bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """Show how far a stage is; ``note`` stands behind its bar."""
        if what not in self._tasks:
            if not self.bars.console.is_terminal and not self.bars.disable:
                self.say(f"{what}: {total:,}")  # a log shows no bars
            for task in self.bars.tasks:
                self.bars.update(task.id, visible=not task.finished)
            self._tasks[what] = self.bars.add_task(escape(what), total=total, note="")
        self.bars.update(self._tasks[what], completed=done, total=total, note=escape(note))

    def say(self, text: str, *, style: str | None = None) -> None:
        """Print a line above the bars."""
        self.bars.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def stages(*, quiet: bool = False) -> Iterator[Stages]:
    """Show bars while the block runs; they vanish at its end where the terminal can do that."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
    )
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, console=console, transient=True, disable=quiet, expand=True) as bars:
        yield Stages(bars)


def warn(*sentences: str) -> None:
    """Print what was odd but usable."""
    console = Console(stderr=True, highlight=False)
    for sentence in sentences:
        console.print(f"[yellow]warning[/]: {escape(sentence)}", soft_wrap=True)


class TrainingBar:
    """The bar of a training run, with loss terms and speed, and a line for each epoch.

    Args:
        bars: where it is drawn.
        label: of the bar.
    """

    def __init__(self, bars: Stages, label: str = "training") -> None:
        self.bars, self.label = bars, label
        self._epochs, self._losses = 0, list[float]()

    def watcher(self) -> Watcher:
        """Return the callbacks that training takes."""
        from triptych.training.loop import Watcher

        return Watcher(on_step=self._step, on_epoch=self._epoch)

    def _step(self, step: Step) -> None:
        self._epochs = step.epochs
        self._losses.append(step.losses["total"])
        terms = [f"{name} {value:.3f}" for name, value in step.losses.items() if name != "total"]
        loss = f"loss {step.losses['total']:.3f}" + (f" ({', '.join(terms)})" if len(terms) > 1 else "")
        self.bars(
            self.label,
            step.epoch * step.steps + step.step,
            step.epochs * step.steps,
            f"epoch {step.epoch + 1}/{step.epochs}  {step.triplets_per_second:,.0f} triplets/s  {loss}",
        )

    def _epoch(self, epoch: int, result: Evaluation, improved: bool) -> None:
        kept, removed = (result.row("composed", reference).mean for reference in ("kept", "removed"))
        loss = sum(self._losses) / max(len(self._losses), 1)
        self._losses.clear()
        recalls = "  ".join(
            f"{metric} {kept[metric]:5.1f} kept {removed[metric]:5.1f} removed" for metric in ("R@10", "R@50")
        )
        count = f"{epoch + 1:{len(str(self._epochs))}}/{self._epochs}"
        line = f"epoch {count}  loss {loss:.3f}  {recalls}{'  best so far' if improved else ''}"
        self.bars.say(line, style="bold" if improved else None)
