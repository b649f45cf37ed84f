"""A look at every picture: which cannot be read, and which look the same (a perceptual hash)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from triptych.audit.rules import Finding
from triptych.triplets.images import ImageError, ImageStore
from triptych.triplets.table import TripletTable

Progress = Callable[[int, int], None]

SIDE, KEPT = 32, 8
CLOSE_BITS, CLOSE_GREY = 2, 4.0
"""Two pictures look the same when their hashes differ in at most so many of 64 bits, and their thumbnails by less than
so many grey levels on average."""


@dataclass(frozen=True)
class Looks:
    """What was seen of each picture.

    Attributes:
        hashes: image id to its 64-bit hash.
        thumbnails: image id to ``[192]`` uint8, 8 x 8 pixels RGB.
        failures: image id to why it could not be read.
    """

    hashes: dict[str, int]
    thumbnails: dict[str, npt.NDArray[np.uint8]]
    failures: dict[str, str]

    def same(self, first: str, second: str) -> bool:
        """Say whether two pictures look the same; False where one could not be read."""
        if first not in self.hashes or second not in self.hashes:
            return False
        if (self.hashes[first] ^ self.hashes[second]).bit_count() > CLOSE_BITS:
            return False
        difference = self.thumbnails[first].astype(np.int16) - self.thumbnails[second]
        return float(np.abs(difference).mean()) < CLOSE_GREY


def look_at(images: ImageStore, image_ids: Iterable[str], progress: Progress | None = None) -> Looks:
    """Decode each picture once; one that cannot be read is noted, not dropped.

    Args:
        images: the pictures.
        image_ids: which.
        progress: called with (done, total).
    """
    ids = list(dict.fromkeys(image_ids))
    looks = Looks({}, {}, {})
    for done, image_id in enumerate(ids, 1):
        try:
            picture = images.load(image_id)
        except ImageError as error:
            looks.failures[image_id] = error.problem
        else:
            looks.hashes[image_id] = perceptual_hash(picture)
            small = picture.convert("RGB").resize((8, 8), Image.Resampling.BOX)
            looks.thumbnails[image_id] = np.asarray(small, dtype=np.uint8).reshape(-1)
        if progress is not None:
            progress(done, len(ids))
    return looks


def perceptual_hash(picture: Image.Image) -> int:
    """Hash what a picture looks like in 64 bits: the signs of its lowest cosine waves against their median.

    Pictures that differ in size, compression or a little in brightness differ in few bits.

    Source: the DCT hash of Zauner, "Implementation and Benchmarking of Perceptual Image Hash Functions" (2010).
    """
    grey = picture.convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    waves = _COSINES @ np.asarray(grey, dtype=np.float64) @ _COSINES.T
    bits = waves.reshape(-1) > np.median(waves.reshape(-1)[1:])
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def alike(looks: Looks) -> list[tuple[str, str]]:
    """List all pairs of pictures that look the same, sorted.

    Hashes within two bits of each other agree in one of four quarters at least, so only such pairs are compared.
    """
    buckets: dict[tuple[int, int], list[str]] = defaultdict(list)
    for image_id, value in looks.hashes.items():
        for quarter in range(4):
            buckets[quarter, (value >> 16 * quarter) & 0xFFFF].append(image_id)
    pairs = {
        tuple(sorted(pair)) for names in buckets.values() if len(names) > 1 for pair in _close(looks, names)
    }
    return sorted((first, second) for first, second in pairs)


def find_by_pictures(table: TripletTable, looks: Looks) -> list[Finding]:
    """Apply the rules on pictures: unreadable ones, and a reference that looks like its target."""
    found = []
    columns = (table.triplet_ids, table.column("reference"), table.column("target"))
    for triplet_id, reference, target in zip(*columns, strict=True):
        if reference in looks.failures:
            found.append(Finding(triplet_id, "unreadable_reference", looks.failures[reference]))
        if target in looks.failures:
            found.append(Finding(triplet_id, "unreadable_target", looks.failures[target]))
        if target is not None and reference != target and looks.same(reference, target):
            found.append(Finding(triplet_id, "identical_pictures", f"{reference}, {target}"))
    return found


def _close(looks: Looks, names: Sequence[str]) -> Iterable[tuple[str, str]]:
    values = np.array([looks.hashes[name] for name in names], dtype=np.uint64)
    for row, name in enumerate(names[:-1]):
        differing = (
            np.unpackbits((values[row + 1 :] ^ values[row]).view(np.uint8)).reshape(-1, 64).sum(axis=1)
        )
        for other in np.flatnonzero(differing <= CLOSE_BITS):
            second = names[row + 1 + int(other)]
            if looks.same(name, second):
                yield name, second


def _cosines() -> npt.NDArray[np.float64]:
    frequency, place = np.arange(KEPT)[:, None], np.arange(SIDE)[None, :]
    return np.cos(np.pi * frequency * (2 * place + 1) / (2 * SIDE))


_COSINES = _cosines()
