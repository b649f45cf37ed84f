"""A stop that loses nothing: Ctrl-C and SIGTERM end a run after the present step."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Says whether the user asked for the end.

    Attributes:
        asked: whether a signal came.
    """

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take signals while the block runs; a second Ctrl-C ends it at once.

        Outside the main thread it takes none: there the caller handles its own signals.
        """

        def stop(number: int, frame: FrameType | None) -> None:
            if self.asked and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.asked = True  # a launcher may send SIGTERM after Ctrl-C: that is the same wish

        try:
            before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not in the main thread
            yield
            return
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
