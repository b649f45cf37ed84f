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
from triptych.backbones.shard import DTYPES, entry_bytes, store_as
from triptych.errors import DataError, UsageError
from triptych.files import require_space
from triptych.triplets.images import ImageError, ImageStore

Progress = Callable[[int, int], None]
Pixels = Iterator[tuple[list[bytes], list[bytes], list[np.ndarray]]]
"""A chunk each: the keys that were wanted, those whose pictures could be read, and the pixels of these."""
_CHUNK = 64


class TokenCache:
    """Frozen tokens of one backbone; several processes may build it at once, and split the work.

    Args:
        backbone: whose tokens these are.
        folder: where the cache is or will be; by default below the user's cache folder.
        dtype: ``float16``, ``int8`` (half the size; one scale a channel and image), or None: what is there.

    Raises:
        UsageError: ``dtype`` is neither.
        DataError: the folder holds tokens of another backbone, preprocessing or dtype, or its files are damaged.
    """

    def __init__(self, backbone: Backbone, folder: Path | None = None, dtype: str | None = None) -> None:
        if dtype is not None and dtype not in DTYPES:
            raise UsageError(f'unknown dtype "{dtype}" of a token cache; there are: {", ".join(DTYPES)}')
        shape = backbone.shape
        self.folder = folder or default_folder(backbone.fingerprint, dtype)
        self._shape = (shape.image_tokens, shape.image_width)
        about = {
            "backbone": backbone.name,
            "image_size": shape.image_size,
            "image_tokens": shape.image_tokens,
            "preprocessing": _preprocessing(backbone),
        }
        self._store = FeatureStore(
            self.folder, backbone.fingerprint, shape.image_width, dtype=dtype, about=about
        )

    def __len__(self) -> int:
        return len(self._store)

    def __contains__(self, key: bytes) -> bool:
        return key in self._store

    @property
    def dtype(self) -> str:
        """How tokens are stored: ``float16`` or ``int8``."""
        return self._store.dtype

    @property
    def image_bytes(self) -> int:
        """What an image takes on disk."""
        return entry_bytes(*self._shape, self.dtype)

    def rows(self, keys: Sequence[bytes]) -> np.ndarray:
        """Return where each key's tokens are, ``[N]`` int64; ``KeyError`` where a key is not cached."""
        return np.array([self._store.place(key) for key in keys], dtype=np.int64)

    def gather(self, rows: np.ndarray) -> Tensor:
        """Read tokens: ``[N]`` to ``[N, P, V]`` float32."""
        return torch.from_numpy(self._store.read(rows, self._shape[0]))

    def rounded(self, tokens: Tensor) -> Tensor:
        """Give tokens ``[N, P, V]`` as they would be read after they were stored, float32."""
        stored = [store_as(entry, self.dtype).restored() for entry in tokens.float().cpu().numpy()]
        return torch.from_numpy(np.stack(stored).astype(np.float32)).to(tokens.device)

    def require_space(self, images: int) -> None:
        """Refuse to begin where the disk cannot hold the tokens of so many images more.

        Raises:
            DataError: names what is needed and what is free; nothing was written.
        """
        require_space(self.folder, images * self.image_bytes, f"the {self.dtype} tokens of {images:,} images")

    def add_images(
        self,
        images: ImageStore,
        image_ids: Sequence[str],
        backbone: Backbone,
        progress: Progress | None = None,
    ) -> dict[str, bytes]:
        """Encode the images that are not cached yet and return every image's key, the SHA-256 of its bytes.

        Raises:
            DataError: images are missing or cannot be read (the message counts them and names the first), or the
                disk cannot hold their tokens.
        """
        keys, failed = find_keys(images, image_ids)
        image_of = {key: image for image, key in keys.items()}

        def load(image_id: str) -> np.ndarray | ImageError:
            try:
                return backbone.preprocess(images.load(image_id))
            except ImageError as error:
                return error

        def pixels(chunks: Iterator[list[bytes]]) -> Pixels:
            with ThreadPoolExecutor(1) as pool:
                for names, loaded in _ahead(pool, load, ([image_of[key] for key in c] for c in chunks)):
                    failed.extend(item for item in loaded if isinstance(item, ImageError))
                    good = [(n, p) for n, p in zip(names, loaded, strict=True) if isinstance(p, np.ndarray)]
                    wanted = [keys[name] for name in names]
                    yield wanted, [keys[name] for name, _ in good], [array for _, array in good]

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

        Raises:
            DataError: the disk cannot hold their tokens.
        """

        def pixels(chunks: Iterator[list[bytes]]) -> Pixels:
            return ((keys, keys, [jobs[key]() for key in keys]) for keys in chunks)

        self._encode(list(jobs), pixels, backbone, progress)

    def _encode(
        self,
        wanted: list[bytes],
        pixels: Callable[[Iterator[list[bytes]]], Pixels],
        backbone: Backbone,
        progress: Progress | None,
    ) -> None:
        store = self._store
        if all(key in store for key in wanted):
            return
        store.refresh()
        left = dict.fromkeys(key for key in wanted if key not in store)
        total = len(left)
        self.require_space(total)
        report, done = progress or (lambda done, total: None), 0
        with store.claims() as claims:
            while left:
                chunks = claims.chunks(left, _CHUNK, store.__contains__, store.refresh)
                for chunk, keys, arrays in pixels(chunks):
                    if keys:
                        encoded = backbone.encode_images(
                            torch.from_numpy(np.stack(arrays)).to(backbone.device)
                        )
                        with store.appending() as append:
                            append(keys, list(encoded.float().cpu().numpy()))
                    claims.release(chunk)
                    done += len(chunk)
                    report(done, total)
                if left:  # another process is at these
                    claims.wait(next(iter(left)))
                    store.refresh()
                    left = dict.fromkeys(key for key in left if key not in store)
                    done = total - len(left)
                    report(done, total)


def default_folder(fingerprint: str, dtype: str | None) -> Path:
    """Return where a backbone's tokens lie; of None, float16 or else int8, whichever is there."""
    name = hashlib.sha256(fingerprint.encode()).hexdigest()[:16]
    folders = {"float16": cache_root() / "tokens" / name, "int8": cache_root() / "tokens" / f"{name}-int8"}
    if dtype is None:
        dtype = next((kind for kind, folder in folders.items() if folder.is_dir()), "float16")
    return folders[dtype]


def _preprocessing(backbone: Backbone) -> str:
    """Name how a backbone makes a picture square: its own word, its settings', or the specification's."""
    for owner in (backbone, getattr(backbone, "config", None)):
        if isinstance(named := getattr(owner, "preprocessing", None), str):
            return named
    return "target_pad"


def find_keys(images: ImageStore, image_ids: Sequence[str]) -> tuple[dict[str, bytes], list[ImageError]]:
    """Return each image's key, the SHA-256 of its bytes, and the errors of those that cannot be read."""
    keys: dict[str, bytes] = {}
    failed: list[ImageError] = []
    for image_id in image_ids:
        try:
            keys[image_id] = bytes.fromhex(images.digest(image_id))
        except ImageError as error:
            failed.append(error)
    return keys, failed


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
