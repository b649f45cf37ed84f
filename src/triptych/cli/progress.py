"""Progress on standard error, so that what a command prints stays clean; a bar for each stage of the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


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
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, console=console, transient=True, disable=quiet) as bars:
        yield Stages(bars)


def warn(*sentences: str) -> None:
    """Print what was odd but usable."""
    console = Console(stderr=True, highlight=False)
    for sentence in sentences:
        console.print(f"[yellow]warning[/]: {escape(sentence)}", soft_wrap=True)
