"""ImageStore: id -> RGB picture, from a folder, a zip or a tar that stays as it is."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from triptych.errors import DataError, UsageError
from triptych.triplets.archives import (
    Contents,
    Entry,
    canonical,
    is_picture_name,
    list_folder,
    list_tar,
    list_zip,
)
from triptych.triplets.decoding import MAX_PIXELS, ImageError, decode_image

__all__ = ["ImageError", "ImageStore", "find_images"]

BESIDE = (
    "images.zip",
    "images.tar",
    "images",
    "image",
    "img",
    "photos",
    "resized_images",
    "resized_image",
    "image_data",
    "fashionIQ_images",
    "fashioniq_images",
    "images.tar.gz",
    "images.tgz",
)
"""Where pictures lie beside annotations; the first that exists is taken (the last two to say what to do)."""

_PACKED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")

_LEFT_OUT = {
    "unsafe_path": "{n} entries of {where} point outside the archive and were left out",
    "bad_name": "{n} files of {where} have names that are not UTF-8 and were left out",
    "link": "{n} entries of {where} are links and were left out",
    "foreign": "{n} pictures of {where} have an ending that is not read (as .heic, .avif) and were left out",
}


class ImageStore:
    """Every picture of a data set by its id: the file's name without folders and ending.

    Pictures are read where they are, never unpacked as a whole. A store may be used from several threads and
    sent to worker processes; each process counts its own ``errors``.

    Attributes:
        path: the folder or archive.
        errors: how many pictures were refused, by kind of :class:`ImageError`.
        left_out: how many files were not taken, by kind (``unsafe_path``, ``bad_name``, ``link``, ``hidden``,
            ``foreign``, ``other``, ``duplicate_id``).
        warnings: what was odd but usable, one sentence each, with counts.
    """

    def __init__(self, path: Path, contents: Contents, *, max_pixels: int = MAX_PIXELS) -> None:
        self.path, self.max_pixels = path, max_pixels
        self.errors: Counter[str] = Counter()
        self.left_out = contents.left_out
        self._entries: dict[str, Entry] = {}
        self._others: dict[str, list[Entry]] = {}
        for entry in contents.entries:
            image_id = _image_id(entry.name)
            if self._entries.setdefault(image_id, entry) is not entry:
                self._others.setdefault(image_id, []).append(entry)
                self.left_out["duplicate_id"] += 1
        self.ids: tuple[str, ...] = tuple(sorted(self._entries))
        self.warnings: tuple[str, ...] = (*contents.warnings, *self._oddities())
        self._counting = threading.Lock()

    @classmethod
    def open(cls, path: str | Path, *, max_pixels: int = MAX_PIXELS) -> ImageStore:
        """List the pictures of a folder (with all folders in it), a ``.zip`` or a ``.tar``.

        Raises:
            UsageError: there is nothing at ``path``.
            DataError: the archive is cut off, damaged, or of a kind that cannot be read in place.
        """
        path = Path(path)
        if path.is_dir():
            return cls(path, list_folder(path), max_pixels=max_pixels)
        if not path.exists():
            raise UsageError(f"{path}: there is no such folder or archive of pictures")
        suffix = path.suffix.lower()
        if suffix == ".zip":
            return cls(path, list_zip(path), max_pixels=max_pixels)
        if suffix == ".tar":
            return cls(path, list_tar(path), max_pixels=max_pixels)
        if suffix in _PACKED:
            raise DataError(
                "pictures cannot be read in place from this kind of archive",
                file=path,
                mend="Unpack it to a folder, or make it a .zip or a plain .tar (as gunzip does).",
            )
        raise DataError("this is neither a folder nor a .zip or .tar of pictures", file=path)

    @classmethod
    def empty(cls, path: str | Path) -> ImageStore:
        """Make a store without pictures, for annotations that came without them."""
        return cls(Path(path), Contents())

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, image_id: object) -> bool:
        return isinstance(image_id, str) and self._find(image_id) is not None

    def __repr__(self) -> str:
        return f"ImageStore({str(self.path)!r}, {len(self)} pictures)"

    def missing(self, image_ids: Iterable[str]) -> list[str]:
        """Return the ids that have no picture, in the order given."""
        return [image_id for image_id in image_ids if image_id not in self]

    def source(self, image_id: str) -> str:
        """Say where a picture is, as ``images.zip/10002.jpg``; for an unknown id, where it was looked for."""
        entry = self._find(image_id)
        return f"{self.path.name}/{entry.name if entry else image_id}"

    def read(self, image_id: str) -> bytes:
        """Return the bytes of a picture's file.

        Raises:
            ImageError: there is no such picture (``missing``) or its bytes cannot be read (``unreadable``).
        """
        entry = self._find(image_id)
        if entry is None:
            problem = f'there is no picture "{image_id}"' + (
                "" if self else " (the data came without pictures)"
            )
            raise self._count(
                ImageError(
                    problem,
                    kind="missing",
                    image_id=image_id,
                    file=self.path,
                    mend="Add it, or remove its triplets; `triptych data check` lists all that are missing.",
                )
            )
        try:
            return entry.read()
        except Exception as error:  # whatever stands in the way, the user must learn which picture it was
            kind = "missing" if isinstance(error, FileNotFoundError) else "unreadable"
            raise self._count(
                ImageError(
                    f"the picture cannot be read ({error})",
                    kind=kind,
                    image_id=image_id,
                    file=self.source(image_id),
                    mend="Fetch it again, or mend the permissions.",
                )
            ) from error

    def load(self, image_id: str) -> Image.Image:
        """Decode a picture to RGB; see :func:`~triptych.triplets.decoding.decode_image`.

        Raises:
            ImageError: it is missing, unreadable, not a picture, cut off or too large.
        """
        data = self.read(image_id)
        try:
            return decode_image(data, self.source(image_id), max_pixels=self.max_pixels, image_id=image_id)
        except ImageError as error:
            raise self._count(error) from error.__cause__

    def digest(self, image_id: str) -> str:
        """Return the SHA-256 of a picture's bytes.

        Raises:
            ImageError: as :meth:`read`.
        """
        return hashlib.sha256(self.read(image_id)).hexdigest()

    def close(self) -> None:
        """Do nothing: a store keeps no file open. It is here for code that closes what it opened."""

    def __enter__(self) -> ImageStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_counting"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._counting = threading.Lock()

    def _count(self, error: ImageError) -> ImageError:
        with self._counting:
            self.errors[error.kind] += 1
        return error

    def _find(self, image_id: str) -> Entry | None:
        """Find an id, also one with its ending or folders, which decide where several files share the id."""
        entry = self._entries.get(image_id)
        if entry is not None and image_id not in self._others:
            return entry
        name = canonical(image_id).replace("\\", "/").removeprefix("./")
        key = name if name in self._entries else _image_id(name)
        if key not in self._entries:
            return None
        choices: list[Entry] = [self._entries[key], *self._others.get(key, ())]
        for wanted, cut in ((name, str), (_stem(name), _stem)):
            for choice in choices:
                if f"/{cut(canonical(choice.name))}".endswith(f"/{wanted}"):
                    return choice
        if "/" in name and len(choices) > 1:
            return None
        return choices[0]

    def _oddities(self) -> list[str]:
        where = self.path.name
        sentences = [
            text.format(n=self.left_out[kind], where=where)
            for kind, text in _LEFT_OUT.items()
            if self.left_out[kind]
        ]
        if self._others:
            first = next(iter(self._others))
            sentences.append(
                f"{len(self._others)} ids of {where} have more than one file, the first by name is taken"
                f' (such as "{first}": {self._entries[first].name}, {self._others[first][0].name})'
            )
        return sentences


def find_images(folder: Path) -> list[Path]:
    """Return the folders and archives of pictures that lie in ``folder``, the one to take first."""
    return [folder / name for name in BESIDE if (folder / name).exists()]


def _image_id(name: str) -> str:
    return canonical(_stem(name.replace("\\", "/").rpartition("/")[2]))


def _stem(name: str) -> str:
    return name[: len(name) - len(_ending(name))]


def _ending(name: str) -> str:
    return "." + name.rpartition(".")[2] if is_picture_name(name) else ""
