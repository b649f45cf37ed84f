"""Requests that come at the same time are embedded together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """One thread that works on whatever has gathered while it was busy; nobody waits for a batch to fill.

    Args:
        work: turns some items into as many results; called in the thread.
        most: items at once.
        seen: called with the size of each batch.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Sequence[Result]],
        most: int,
        seen: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._work, self._most, self._seen = work, most, seen
        self._waiting: asyncio.Queue[tuple[Item, asyncio.Future[Result]]] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, "model")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work, in the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End; what waits is given up."""
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def __call__(self, item: Item) -> Result:
        """Work on an item; if the caller is cancelled before its turn, it costs nothing."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        await self._waiting.put((item, future))
        return await future

    async def _run(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < self._most and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            batch = [(item, future) for item, future in batch if not future.done()]
            if batch:
                self._seen(len(batch))
                await self._do(batch)

    async def _do(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self._thread, self._work, [item for item, _ in batch])
        except Exception as error:
            if len(batch) == 1:
                if not batch[0][1].done():
                    batch[0][1].set_exception(error)
                return
            for one in batch:  # the others must not suffer from one that fails
                await self._do([one])
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)
