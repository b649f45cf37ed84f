"""Read a feature store again: which shards are not what was written, and how to drop them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from triptych.backbones.feature_store import FORMAT, locked, read_meta, shard_numbers
from triptych.backbones.shard import RECORD, Shard
from triptych.errors import DataError


@dataclass(frozen=True)
class ShardReport:
    """What was found in a shard.

    Attributes:
        number: of the shard.
        entries: how many whole entries it has.
        bytes: what they take on disk.
        problems: what is wrong; empty where all is as it was written.
    """

    number: int
    entries: int
    bytes: int
    problems: list[str] = field(default_factory=list)


def open_shards(folder: Path) -> list[Shard]:
    """Open the shards of a store without an encoder.

    Raises:
        DataError: the folder holds no store, or one of another version.
    """
    if not (folder / "meta.json").is_file():
        raise DataError("there is no cache here", file=folder, mend="`triptych cache build DATA` makes one.")
    meta = read_meta(folder)
    if meta.get("format") != FORMAT:
        raise DataError(
            f"this cache has format {meta.get('format')}, not {FORMAT}",
            file=folder,
            mend="A cache of the first version is brought up to date by whatever uses it, such as "
            "`triptych cache build`; another was made by a later version of Triptych.",
        )
    return [Shard(folder, number, int(meta["width"]), str(meta["dtype"])) for number in shard_numbers(folder)]


def check_store(folder: Path, progress: Callable[[int, int], None] | None = None) -> list[ShardReport]:
    """Read every shard and compare it with its checksums; several processes may be building meanwhile.

    Args:
        folder: the store's.
        progress: called with (done, total) shards.

    Returns:
        A report a shard.

    Raises:
        DataError: the folder holds no store.
    """
    shards = open_shards(folder)
    seen: set[bytes] = set()
    reports = []
    for done, shard in enumerate(shards, 1):
        reports.append(_check(shard, seen))
        if progress:
            progress(done, len(shards))
    return reports


def _check(shard: Shard, seen: set[bytes]) -> ShardReport:
    try:
        shard.load()
    except DataError as error:
        return ShardReport(shard.number, 0, 0, [error.problem.removeprefix("this cache is damaged: ")])
    problems = []
    if bad := len(shard.damaged_entries()):
        problems.append(f"{bad} of {len(shard)} entries are not what was written")
    listed = shard.keys_file.stat().st_size // RECORD.itemsize
    if listed > len(shard) and (missing := listed - len(shard)):
        problems.append(f"{missing} of {listed} listed entries are cut off")
    if twice := len(shard) - len(set(shard.keys) - seen):
        problems.append(f"{twice} entries are listed twice")
    seen.update(shard.keys)
    return ShardReport(shard.number, len(shard), shard.bytes, problems)


def repair_store(folder: Path, reports: Sequence[ShardReport]) -> list[int]:
    """Drop the shards in which something is wrong, so that the next build makes their entries again.

    Returns:
        The numbers of the dropped shards.
    """
    bad = [report.number for report in reports if report.problems]
    with locked(folder):
        for shard in open_shards(folder):
            if shard.number in bad:
                for path in shard.files:
                    path.unlink(missing_ok=True)
    return bad
