"""Frozen word states of MiniLM, computed once a text and kept on disk."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from triptych.backbones.feature_store import FeatureStore, cache_root

Progress = Callable[[int, int], None]
_CHUNK = 64
_BATCH = 8
_REMEMBERED = 4096


class MiniLMStates(nn.Module):
    """all-MiniLM-L6-v2, frozen: per text its mean vector (the sentence embedding), then its word states.

    At most ``max_length`` positions. What :meth:`prepare` computed stays on disk in half precision. Texts are encoded
    eight at a time and all of one length, so that not even the last bits of a text's state depend on its company.

    Args:
        folder: the model's folder (config, safetensors, tokenizer).
        max_length: positions a text, the sentence embedding included.
    """

    width = 384

    def __init__(self, folder: Path, *, max_length: int = 32) -> None:
        super().__init__()
        from transformers import AutoTokenizer, BertModel
        from transformers.utils import logging

        self.max_length = max_length
        level = logging.get_verbosity()
        logging.set_verbosity_error()  # the pooler that the file holds beside is not used
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # its bar of weights, for 0.1 s
                self.tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
                self.model = BertModel.from_pretrained(
                    str(folder), local_files_only=True, add_pooling_layer=False
                )
        finally:
            logging.set_verbosity(level)
        self.model.eval().requires_grad_(False)
        digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()[:12]
        self.fingerprint = f"minilm-1:{digest}:{max_length}"
        self._store: FeatureStore | None = None
        self._recent: dict[bytes, Tensor] = {}

    def train(self, mode: bool = True) -> MiniLMStates:
        """Stay in eval mode: the encoder is frozen."""
        return super().train(False)

    def prepare(self, texts: Iterable[str], progress: Progress | None = None) -> None:
        """Compute the states of the texts that are not stored yet, and store them."""
        store = self._opened()
        wanted = sorted({text for text in texts if _key(text) not in store})
        if not wanted:
            return
        with store.appending() as append:
            missing = [
                text for text in wanted if _key(text) not in store
            ]  # another process may have been at it
            lengths = dict(zip(missing, map(len, self._tokenise(missing)), strict=True))
            missing.sort(key=lambda text: (lengths[text], text))
            for start in range(0, len(missing), _CHUNK):
                chunk = missing[start : start + _CHUNK]
                append([_key(text) for text in chunk], [state.numpy() for state in self._encode(chunk)])
                if progress:
                    progress(start + len(chunk), len(missing))

    def forward(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return the states ``[B, L, 384]`` (float32, zero where padded) and the mask ``[B, L]``."""
        store = self._opened()
        new = list(
            dict.fromkeys(
                text for text in texts if _key(text) not in store and _key(text) not in self._recent
            )
        )
        self._recent.update(zip(map(_key, new), self._encode(new), strict=True))
        rows = [self._state(store, _key(text)) for text in texts]
        for old in list(self._recent)[: max(0, len(self._recent) - _REMEMBERED)]:
            del self._recent[old]
        device = self.model.device
        states = pad_sequence(rows, batch_first=True).to(device, torch.float32)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        return states, torch.arange(states.shape[1], device=device)[None, :] < lengths[:, None]

    def pieces(self, text: str) -> list[str]:
        """Return the word pieces of a text that have a state."""
        pieces: list[str] = self.tokenizer.convert_ids_to_tokens(self._tokenise([text])[0][1:-1])
        return pieces

    def _state(self, store: FeatureStore, key: bytes) -> Tensor:
        return torch.from_numpy(np.array(store[key])) if key in store else self._recent[key]

    def _opened(self) -> FeatureStore:
        if self._store is None:
            name = hashlib.sha256(self.fingerprint.encode()).hexdigest()[:16]
            self._store = FeatureStore(cache_root() / "texts" / name, self.fingerprint, self.width)
        return self._store

    def _tokenise(self, texts: list[str]) -> list[list[int]]:
        if not texts:
            return []
        ids: list[list[int]] = self.tokenizer(texts, truncation=True, max_length=self.max_length + 1)[
            "input_ids"
        ]
        return ids

    @torch.no_grad()
    def _encode(self, texts: list[str]) -> list[Tensor]:
        ids = self._tokenise(texts)
        by_length: dict[int, list[int]] = {}
        for index, row in enumerate(ids):
            by_length.setdefault(len(row), []).append(index)
        states: dict[int, Tensor] = {}
        for group in by_length.values():
            for start in range(0, len(group), _BATCH):
                part = group[start : start + _BATCH]
                filled = part + part[-1:] * (_BATCH - len(part))
                inputs = torch.tensor([ids[index] for index in filled], device=self.model.device)
                with torch.autocast(self.model.device.type, enabled=False):
                    hidden = self.model(input_ids=inputs).last_hidden_state
                for index, row in zip(part, hidden, strict=False):
                    words = row[1:-1]  # without [CLS] and [SEP]
                    states[index] = torch.cat([row.mean(dim=0, keepdim=True), words]).half().cpu()
        return [states[index] for index in range(len(texts))]


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
