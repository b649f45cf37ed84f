"""TokenCache: frozen image tokens on disk, computed once an image and keyed by its bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from triptych.backbones.base import Backbone
from triptych.backbones.feature_store import FeatureStore, cache_root
from triptych.errors import DataError
from triptych.triplets.images import ImageError, ImageStore

Progress = Callable[[int, int], None]
Pixels = Iterator[tuple[list[bytes], list[np.ndarray]]]
_CHUNK = 64


class TokenCache:
    """Frozen tokens of one backbone.

    Args:
        folder: where the cache is or will be; by default below the user's cache folder.
        backbone: whose tokens these are.

    Raises:
        DataError: the folder holds tokens of another backbone or preprocessing, or its files are damaged.
    """

    def __init__(self, backbone: Backbone, folder: Path | None = None) -> None:
        shape = backbone.shape
        name = hashlib.sha256(backbone.fingerprint.encode()).hexdigest()[:16]
        self.folder = folder or cache_root() / "tokens" / name
        self._shape = (shape.image_tokens, shape.image_width)
        self._store = FeatureStore(self.folder, backbone.fingerprint, shape.image_width)

    def __len__(self) -> int:
        return len(self._store)

    def __contains__(self, key: bytes) -> bool:
        return key in self._store

    def rows(self, keys: Sequence[bytes]) -> np.ndarray:
        """Return where each key's tokens are, ``[N]`` int64; ``KeyError`` where a key is not cached."""
        return np.array([self._store.span(key)[0] // self._shape[0] for key in keys], dtype=np.int64)

    def gather(self, rows: np.ndarray) -> Tensor:
        """Read tokens: ``[N]`` to ``[N, P, V]`` float32."""
        tokens = self._store.features.reshape(-1, *self._shape)
        return torch.from_numpy(tokens[rows].astype(np.float32))

    def add_images(
        self,
        images: ImageStore,
        image_ids: Sequence[str],
        backbone: Backbone,
        progress: Progress | None = None,
    ) -> dict[str, bytes]:
        """Encode the images that are not cached yet and return every image's key, the SHA-256 of its bytes.

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
        image_of = {key: image for image, key in keys.items()}

        def load(image_id: str) -> np.ndarray | ImageError:
            try:
                return backbone.preprocess(images.load(image_id))
            except ImageError as error:
                return error

        def pixels(missing: list[bytes]) -> Pixels:
            with ThreadPoolExecutor(1) as pool:
                for names, loaded in _ahead(pool, load, _chunked([image_of[key] for key in missing])):
                    failed.extend(item for item in loaded if isinstance(item, ImageError))
                    good = [(n, p) for n, p in zip(names, loaded, strict=True) if isinstance(p, np.ndarray)]
                    yield [keys[name] for name, _ in good], [array for _, array in good]

        self._encode(list(image_of), pixels, backbone, progress)
        if failed:
            shown = "\n  ".join(str(error).splitlines()[0] for error in failed[:5])
            raise DataError(
                f"{len(failed)} of {len(image_ids)} images cannot be read:\n  {shown}",
                file=images.path,
                mend="`triptych data check` lists all of them. Mend or remove them, then run again.",
            )
        return keys

    def add_derived(
        self,
        jobs: Mapping[bytes, Callable[[], np.ndarray]],
        backbone: Backbone,
        progress: Progress | None = None,
    ) -> None:
        """Encode pictures that were made rather than read, such as counterfactuals.

        Args:
            jobs: key to a function that gives ``[3, H, W]`` pixels in [0, 1]; called only where the key is missing.
            backbone: encodes.
            progress: called with (done, total).
        """

        def pixels(missing: list[bytes]) -> Pixels:
            return ((keys, [jobs[key]() for key in keys]) for keys in _chunked(missing))

        self._encode(list(jobs), pixels, backbone, progress)

    def _encode(
        self,
        wanted: list[bytes],
        pixels: Callable[[list[bytes]], Pixels],
        backbone: Backbone,
        progress: Progress | None,
    ) -> None:
        if all(key in self for key in wanted):
            return
        with self._store.appending() as append:
            missing = [key for key in wanted if key not in self]  # another process may have been at it
            done = 0
            for keys, arrays in pixels(missing):
                if keys:
                    encoded = backbone.encode_images(torch.from_numpy(np.stack(arrays)).to(backbone.device))
                    append(keys, list(encoded.float().cpu().numpy()))
                done = min(done + _CHUNK, len(missing))
                if progress:
                    progress(done, len(missing))


def _chunked(items: list) -> Iterator[list]:  # type: ignore[type-arg]
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


def _ahead(
    pool: ThreadPoolExecutor, load: Callable[[str], np.ndarray | ImageError], chunks: Iterator[list[str]]
) -> Iterator[tuple[list[str], list[np.ndarray | ImageError]]]:
    """Load each chunk while the one before it is used."""
    waiting: list[tuple[list[str], Future[list[np.ndarray | ImageError]]]] = []
    for names in chunks:
        waiting.append((names, pool.submit(lambda names: [load(name) for name in names], names)))
        if len(waiting) > 1:
            ready, future = waiting.pop(0)
            yield ready, future.result()
    for ready, future in waiting:
        yield ready, future.result()
