"""Where pictures are: the files of a folder, the entries of a zip or a tar, listed without unpacking.

Every read opens the file anew and shares no position with any other, so pictures may be read from several
threads and, after a fork or a pickle, from several processes.
"""

from __future__ import annotations

import os
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from triptych.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".jpe", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
"""File endings of pictures, in lower case."""

FOREIGN_SUFFIXES = (".avif", ".heic", ".heif", ".jp2", ".jxl", ".svg", ".psd")
"""Endings of pictures that are not read; they are counted, so that nobody wonders where they are."""

MAX_BYTES = 256 * 2**20
"""No single picture file may be larger."""


@dataclass(frozen=True, slots=True)
class PlainFile:
    """A picture that is a file of its own."""

    name: str
    file: str

    def read(self) -> bytes:
        """Return the bytes of the file."""
        with open(self.file, "rb") as source:
            return _bounded(source.read(MAX_BYTES + 1))


@dataclass(frozen=True, slots=True)
class TarEntry:
    """A picture inside an uncompressed tar: a slice of the file."""

    name: str
    file: str
    offset: int
    size: int

    def read(self) -> bytes:
        """Return the bytes of the entry."""
        with open(self.file, "rb") as source:
            source.seek(self.offset)
            data = source.read(min(self.size, MAX_BYTES + 1))
        if len(data) < min(self.size, MAX_BYTES + 1):
            raise ValueError("the archive ends before the entry does")
        return _bounded(data)


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """A picture inside a zip, stored or deflated."""

    name: str
    file: str
    offset: int
    packed: int
    size: int
    method: int
    crc: int
    encrypted: bool

    def read(self) -> bytes:
        """Return the unpacked bytes of the entry."""
        if self.encrypted:
            raise ValueError("the entry is protected by a password")
        if max(self.size, self.packed) > MAX_BYTES:
            raise ValueError(f"the entry is larger than {MAX_BYTES:,} bytes")
        with open(self.file, "rb") as source:
            source.seek(self.offset)
            header = source.read(30)
            if len(header) < 30 or header[:4] != b"PK\3\4":
                raise ValueError("the archive is damaged or was changed while open")
            name_length, extra_length = struct.unpack("<HH", header[26:30])
            source.seek(name_length + extra_length, os.SEEK_CUR)
            data = source.read(self.packed)
        if self.method == zipfile.ZIP_DEFLATED:
            data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, self.size + 1)
        elif self.method != zipfile.ZIP_STORED:
            raise ValueError("the entry is packed by a method other than stored or deflated")
        if len(data) != self.size or zlib.crc32(data) != self.crc:
            raise ValueError("the entry is damaged: its checksum is wrong")
        return data


Entry = PlainFile | TarEntry | ZipEntry


@dataclass
class Contents:
    """What a folder or an archive holds.

    Attributes:
        entries: every picture, in order of name.
        left_out: what was not taken, by kind: ``unsafe_path``, ``bad_name``, ``link``, ``hidden``,
            ``foreign``, ``other``.
        warnings: other oddities, one sentence each.
    """

    entries: list[Entry] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)

    def wants(self, name: str) -> bool:
        """Tell whether ``name`` is a picture to take, and count it where it is not."""
        reason = _why_not(name)
        if reason:
            self.left_out[reason] += 1
        return not reason


def is_picture_name(name: str) -> bool:
    """Tell whether a file name ends as a picture does, in any case.

    Example:
        >>> is_picture_name("UPPER.JPG"), is_picture_name("notes.txt")
        (True, False)
    """
    return name.lower().endswith(SUFFIXES)


def list_folder(path: Path) -> Contents:
    """List the pictures of a folder and all folders in it; links to folders are followed, loops are not."""
    contents = Contents()
    seen: set[str] = set()
    for folder, below, names in os.walk(path, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(names):
            relative = Path(os.path.relpath(os.path.join(folder, name), path)).as_posix()
            if contents.wants(relative):
                contents.entries.append(PlainFile(relative, os.path.join(folder, name)))
    contents.entries.sort(key=lambda entry: entry.name)
    return contents


def list_zip(path: Path) -> Contents:
    """List the pictures of a zip from its directory; nothing is unpacked.

    Raises:
        DataError: the archive is cut off or is not a zip.
    """
    contents = Contents()
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                name = _zip_name(info)
                if info.is_dir():
                    continue
                if stat.S_ISLNK(info.external_attr >> 16):
                    contents.left_out["link"] += 1
                elif contents.wants(name):
                    contents.entries.append(
                        ZipEntry(
                            name=name,
                            file=str(path),
                            offset=info.header_offset,
                            packed=info.compress_size,
                            size=info.file_size,
                            method=info.compress_type,
                            crc=info.CRC,
                            encrypted=bool(info.flag_bits & 0x1),
                        )
                    )
    except (zipfile.BadZipFile, OSError, ValueError, struct.error, NotImplementedError, EOFError) as error:
        raise _damaged(path, error) from error
    contents.entries.sort(key=lambda entry: entry.name)
    return contents


def list_tar(path: Path) -> Contents:
    """List the pictures of an uncompressed tar by walking its headers; nothing is unpacked.

    Raises:
        DataError: the archive is cut off, compressed or not a tar.
    """
    contents = Contents()
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                if member.isdir():
                    continue
                if not member.isreg() or member.issparse():
                    contents.left_out["link" if member.issym() or member.islnk() else "other"] += 1
                elif contents.wants(member.name):
                    contents.entries.append(TarEntry(member.name, str(path), member.offset_data, member.size))
            end = archive.offset
        with path.open("rb") as file:
            file.seek(end)
            mark = file.read(tarfile.BLOCKSIZE)
        if any(mark):  # tarfile stops without a word at a header that it cannot read
            raise ValueError(f"no header can be read at byte {end:,}")
    except (tarfile.TarError, OSError, ValueError, EOFError, struct.error) as error:
        raise _damaged(path, error) from error
    if len(mark) < tarfile.BLOCKSIZE:
        contents.warnings.append(f"{path.name} has no end mark; it may have been cut off")
    contents.entries.sort(key=lambda entry: entry.name)
    return contents


def _why_not(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        return "bad_name"
    path = name.replace("\\", "/")
    parts = path.removeprefix("./").split("/")
    if path.startswith("/") or parts[0].endswith(":") or ".." in parts or "\0" in name:
        return "unsafe_path"
    if "__MACOSX" in parts or any(part.startswith(".") for part in parts):
        return "hidden"
    if is_picture_name(name):
        return ""
    return "foreign" if name.lower().endswith(FOREIGN_SUFFIXES) else "other"


def _zip_name(info: zipfile.ZipInfo) -> str:
    """Undo the reading of UTF-8 names as code page 437, which zips without the UTF-8 flag get."""
    if not info.flag_bits & 0x800:
        try:
            return info.filename.encode("cp437").decode("utf-8")
        except UnicodeError:
            pass
    return info.filename


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise ValueError(f"the file is larger than {MAX_BYTES:,} bytes")
    return data


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(
        f"the archive is cut off or damaged ({error})",
        file=path,
        mend="Copy or download it again; `unzip -t` or `tar -tf` shows whether it is whole.",
    )


def canonical(name: str) -> str:
    """Return ``name`` in Unicode form C, so that one name typed on two systems is one id."""
    return unicodedata.normalize("NFC", name)
