"""TokenCache: frozen image tokens on disk, computed once an image.

A cache folder belongs to one backbone. It holds ``meta.json`` (whose tokens these are), ``tokens.f16`` (rows of
``[P, V]`` half-precision values, memory-mapped) and ``keys.bin`` (a 32-byte key a row: the SHA-256 of the image's
bytes). Rows are appended, tokens before keys, so an interrupted build loses at most its last chunk and resumes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from triptych.backbones.base import Backbone
from triptych.errors import DataError
from triptych.files import explain_full_disk, write_json
from triptych.triplets.images import ImageError, ImageStore

Progress = Callable[[int, int], None]
_KEY_BYTES = 32
_CHUNK = 64


class TokenCache:
    """Frozen tokens of one backbone, keyed by image bytes.

    Args:
        folder: where the cache is or will be.
        backbone: whose tokens these are.

    Raises:
        DataError: the folder holds tokens of another backbone, or its files are damaged.
    """

    def __init__(self, folder: Path, backbone: Backbone) -> None:
        self.folder = folder
        shape = backbone.shape
        self.row_shape = (shape.image_tokens, shape.image_width)
        self._row_bytes = 2 * shape.image_tokens * shape.image_width
        self._meta = {"format": 1, "backbone": backbone.fingerprint, "tokens": list(self.row_shape), "dtype": "float16"}
        self._open()

    @classmethod
    def default_folder(cls, backbone: Backbone) -> Path:
        """Return this backbone's folder below ``$TRIPTYCH_CACHE`` or the user's cache folder."""
        base = os.environ.get("TRIPTYCH_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "triptych"
        return Path(base) / "tokens" / hashlib.sha256(backbone.fingerprint.encode()).hexdigest()[:16]

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, key: bytes) -> bool:
        return key in self._row_of

    @property
    def bytes_on_disk(self) -> int:
        """Size of the token file."""
        return len(self) * self._row_bytes

    def rows(self, keys: Sequence[bytes]) -> np.ndarray:
        """Return the row of each key, ``[N]`` int64; ``KeyError`` where a key is not cached."""
        return np.array([self._row_of[key] for key in keys], dtype=np.int64)

    def gather(self, rows: np.ndarray) -> Tensor:
        """Read rows: ``[N]`` to ``[N, P, V]`` float32."""
        return torch.from_numpy(self._tokens[rows].astype(np.float32))

    def add_images(
        self, images: ImageStore, image_ids: Sequence[str], backbone: Backbone, progress: Progress | None = None
    ) -> dict[str, bytes]:
        """Encode the images that are not cached yet and return every image's key.

        Raises:
            DataError: images are missing or cannot be read; the message counts them and names the first.
        """
        keys: dict[str, bytes] = {}
        failed: list[ImageError] = []
        for image_id in image_ids:
            try:
                keys[image_id] = bytes.fromhex(images.digest(image_id))
            except ImageError as error:
                failed.append(error)
        missing = list({key: image for image, key in keys.items() if key not in self}.values())

        def load(image_id: str) -> np.ndarray | ImageError:
            try:
                return backbone.preprocess(images.load(image_id))
            except ImageError as error:
                return error

        def chunks() -> Iterator[tuple[list[bytes], Tensor]]:
            with ThreadPoolExecutor(2) as pool:
                batches = [missing[start : start + _CHUNK] for start in range(0, len(missing), _CHUNK)]
                ahead = [pool.submit(lambda names: [load(name) for name in names], batches[0])] if batches else []
                for index, names in enumerate(batches):
                    pixels = ahead.pop().result()
                    if index + 1 < len(batches):
                        ahead.append(pool.submit(lambda names: [load(name) for name in names], batches[index + 1]))
                    good = [(keys[name], p) for name, p in zip(names, pixels, strict=True) if isinstance(p, np.ndarray)]
                    failed.extend(p for p in pixels if isinstance(p, ImageError))
                    if good:
                        yield [key for key, _ in good], torch.from_numpy(np.stack([p for _, p in good]))

        self._append(chunks(), len(missing), backbone, progress)
        if failed:
            shown = "\n  ".join(str(error).splitlines()[0] for error in failed[:5])
            raise DataError(
                f"{len(failed)} of {len(image_ids)} images cannot be read:\n  {shown}",
                file=images.path,
                mend="Run `triptych data check` on the data to list all of them; mend or remove them, then run again.",
            )
        return keys

    def add_derived(
        self,
        jobs: Mapping[bytes, Callable[[], Tensor]],
        backbone: Backbone,
        progress: Progress | None = None,
    ) -> None:
        """Encode pictures that were made rather than read, such as counterfactuals.

        Args:
            jobs: key to a function that gives ``[3, H, W]`` pixels in [0, 1]; called only where the key is missing.
        """
        missing = [key for key in jobs if key not in self]

        def chunks() -> Iterator[tuple[list[bytes], Tensor]]:
            for start in range(0, len(missing), _CHUNK):
                keys = missing[start : start + _CHUNK]
                yield keys, torch.stack([jobs[key]() for key in keys])

        self._append(chunks(), len(missing), backbone, progress)

    def _append(
        self, chunks: Iterator[tuple[list[bytes], Tensor]], total: int, backbone: Backbone, progress: Progress | None
    ) -> None:
        if not total:
            return
        done = 0
        with self._locked(), explain_full_disk(self.folder):
            self._read_keys()  # another process may have written while this one waited
            with (self.folder / "tokens.f16").open("r+b") as tokens, (self.folder / "keys.bin").open("r+b") as keys:
                tokens.truncate(len(self) * self._row_bytes)
                keys.truncate(len(self) * _KEY_BYTES)
                tokens.seek(0, os.SEEK_END)
                keys.seek(0, os.SEEK_END)
                for names, pixels in chunks:
                    done += len(names)
                    fresh = [i for i, name in enumerate(names) if name not in self]
                    if not fresh:
                        continue
                    names, pixels = [names[i] for i in fresh], pixels[fresh]
                    encoded = backbone.encode_images(pixels.to(backbone.device)).cpu().numpy()
                    if not np.isfinite(encoded).all():
                        raise DataError("the backbone gave tokens that are not finite; its weights are damaged", file=self.folder)
                    tokens.write(encoded.astype(np.float16).tobytes())
                    tokens.flush()
                    os.fsync(tokens.fileno())
                    keys.write(b"".join(names))
                    keys.flush()
                    os.fsync(keys.fileno())
                    if progress:
                        progress(done, total)
        self._open()

    def _open(self) -> None:
        meta = self.folder / "meta.json"
        if meta.is_file():
            found = json.loads(meta.read_text(encoding="utf-8"))
            if found != self._meta:
                raise DataError(
                    f'these tokens were made by backbone "{found.get("backbone")}", not by "{self._meta["backbone"]}"',
                    file=self.folder,
                    mend="Choose another cache folder, or delete this one.",
                )
        else:
            with explain_full_disk(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
                for name in ("tokens.f16", "keys.bin"):
                    (self.folder / name).touch()
            write_json(meta, self._meta)
        self._read_keys()

    def _read_keys(self) -> None:
        raw = (self.folder / "keys.bin").read_bytes()
        size = (self.folder / "tokens.f16").stat().st_size
        whole = min(len(raw) // _KEY_BYTES, size // self._row_bytes)
        self._row_of = {raw[i * _KEY_BYTES : (i + 1) * _KEY_BYTES]: i for i in range(whole)}
        if len(self._row_of) != whole:
            raise DataError("the cache lists an image twice; it is damaged", file=self.folder, mend="Delete this folder.")
        self._tokens = (
            np.memmap(self.folder / "tokens.f16", dtype=np.float16, mode="r", shape=(whole, *self.row_shape))
            if whole
            else np.empty((0, *self.row_shape), dtype=np.float16)
        )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
