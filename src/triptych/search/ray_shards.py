"""The shards of a gallery on Ray Data: actors embed groups of pictures; what a lost one had is done again."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from triptych.errors import TriptychError
from triptych.search.gallery import Gallery
from triptych.search.indexing import Progress, grouped
from triptych.search.metadata import Metadata, read_metadata
from triptych.search.pictures import find_pictures
from triptych.search.sharding import ShardIndexed, index_piece, prepare_shards

LOCAL = "local"
"""In place of an address: Ray is started on this machine."""


def index_with_ray(
    gallery: Gallery,
    images: Path,
    *,
    workers: int,
    address: str = LOCAL,
    metadata: Path | None = None,
    progress: Progress | None = None,
) -> ShardIndexed:
    """Embed pictures by ``workers`` actors of Ray; a merge then lists what they wrote.

    Ray Data starts an actor that died anew and gives its group to another; a group whose record is there is not
    embedded again.

    Args:
        gallery: where to, in a folder that all machines see under the same path.
        images: the pictures, under the same path everywhere.
        workers: actors, one core each.
        address: of a Ray cluster, or ``local``.
        metadata: a table of metadata.
        progress: called with (groups done, all groups).

    Raises:
        DataError: as :func:`~triptych.search.sharding.index_shard`.
        TriptychError: Ray is not installed.
    """
    if find_spec("ray") is None:
        raise TriptychError('--ray needs Ray.\n  Run: pip install "triptych[ray]"')
    import ray
    import ray.data

    pictures = find_pictures(images)
    described = _described(metadata, pictures.metadata)
    groups = prepare_shards(gallery, gallery.load_model(), pictures.items, described)
    started = not ray.is_initialized()
    if started:
        where = {"num_cpus": workers} if address == LOCAL else {}
        ray.init(address=address, log_to_driver=False, include_dashboard=False, **where)  # type: ignore[arg-type]
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        outcomes: Counter[str] = Counter()
        given = {
            "folder": str(gallery.folder.absolute()),
            "images": str(images.absolute()),
            "metadata": None if metadata is None else str(metadata.absolute()),
            "shards": workers,
        }
        numbers = ray.data.range(len(groups), override_num_blocks=len(groups))
        indexer: Any = _GroupIndexer  # Ray's signature knows functions only
        found = numbers.map(indexer, fn_constructor_kwargs=given, concurrency=workers, num_cpus=1)
        for row in found.iter_rows():
            outcomes[row["outcome"]] += 1
            if progress:
                progress(outcomes.total(), len(groups))
    finally:
        if started:
            ray.shutdown()
    return ShardIndexed(len(groups), outcomes["embedded"], outcomes["there"], outcomes["elsewhere"])


class _GroupIndexer:
    """An actor: the model is loaded once, then it embeds the groups that it is given by number."""

    def __init__(self, folder: str, images: str, metadata: str | None, shards: int) -> None:
        self.gallery = Gallery.open(folder)
        self.model = self.gallery.load_model()
        pictures = find_pictures(images)
        self.groups = list(grouped(pictures.items))
        self.metadata = _described(Path(metadata) if metadata else None, pictures.metadata)
        self.shards = shards

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Embed group ``row["id"]``."""
        number = int(row["id"])
        with ThreadPoolExecutor(1) as pool:
            outcome = index_piece(
                self.gallery, self.model, self.groups, number, self.shards, pool, self.metadata
            )
        return {"group": number, "outcome": outcome}


def _described(metadata: Path | None, own: Metadata | None) -> Metadata | None:
    return read_metadata(metadata) if metadata else own
