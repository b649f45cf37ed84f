"""Look through a gallery without a query: its images in the order of their ids, a page at a time."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from triptych.search.columns import HEIGHT, ID, WIDTH, filter_fields
from triptych.search.filter_tree import Filter
from triptych.search.filters import parse_filter
from triptych.search.store import Snapshot

MAX_PAGE = 200
"""Images on a page, at most."""

_KEPT = 8


@dataclass(frozen=True)
class Image:
    """An image of a page.

    Attributes:
        image_id: its id.
        width: of the picture, in pixels.
        height: of the picture, in pixels.
        metadata: its metadata columns.
    """

    image_id: str
    width: int
    height: int
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Page:
    """Some images in the order of their ids.

    Attributes:
        images: the images.
        total: how many pass the filter, on all pages.
        after: the id that the next page starts after; None on the last one.
        version: of the gallery.
    """

    images: Sequence[Image]
    total: int
    after: str | None
    version: int


@dataclass(frozen=True)
class _Order:
    ids: list[str]
    rows: np.ndarray


class Browser:
    """Pages of a gallery's versions; the last orders are kept, so that the next page is found at once."""

    def __init__(self) -> None:
        self._orders: OrderedDict[tuple[int, Filter | None], _Order] = OrderedDict()
        self._lock = threading.Lock()

    def page(
        self,
        snapshot: Snapshot,
        *,
        after: str | None = None,
        skip: int = 0,
        limit: int = 50,
        where: str | None = None,
    ) -> Page:
        """Return the images that come after an id, which need not be there.

        Args:
            snapshot: the version to look through.
            after: an id; None starts with the first image.
            skip: images to pass over before the page starts.
            limit: images on the page, up to 200.
            where: a filter (of :mod:`~triptych.search.filters`).

        Raises:
            FilterError: the filter cannot be read or names what is not there.
            DataError: the table is damaged.
        """
        order = self._order(snapshot, where)
        start = (0 if after is None else bisect_right(order.ids, after)) + skip
        stop = min(start + min(limit, MAX_PAGE), len(order.ids))
        found = snapshot.details(order.rows[start:stop].tolist(), [ID, WIDTH, HEIGHT, *snapshot.metadata])
        images = [
            Image(row[ID], row[WIDTH], row[HEIGHT], {name: row[name] for name in snapshot.metadata})
            for row in found
        ]
        after = order.ids[stop - 1] if start < stop < len(order.ids) else None
        return Page(images, len(order.ids), after, snapshot.version)

    def _order(self, snapshot: Snapshot, where: str | None) -> _Order:
        written = None if where is None else parse_filter(where, filter_fields(snapshot.schema))
        key = (snapshot.version, written)
        with self._lock:
            order = self._orders.get(key)
            if order is None:
                found = snapshot.read([ID], where=written)
                places = pc.sort_indices(found[ID])
                rows = np.asarray(found["_rowid"].take(places), dtype=np.uint64)
                order = self._orders[key] = _Order(found[ID].take(places).to_pylist(), rows)
            self._orders.move_to_end(key)
            while len(self._orders) > _KEPT:
                self._orders.popitem(last=False)
            return order
