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
_BATCH = 64
_REMEMBERED = 4096


class MiniLMStates(nn.Module):
    """all-MiniLM-L6-v2, frozen: per text its mean vector (the sentence embedding), then its word states.

    At most ``max_length`` positions. What :meth:`prepare` computed stays on disk in half precision; a text's state
    depends in its last bits on those it was batched with, so what is stored is always preferred.

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
        missing = sorted(
            {text for text in texts if _key(text) not in store}, key=lambda text: (len(text), text)
        )
        if not missing:
            return
        with store.appending() as append:
            for start in range(0, len(missing), _BATCH):
                chunk = missing[start : start + _BATCH]
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
        for start in range(0, len(new), _BATCH):
            chunk = new[start : start + _BATCH]
            self._recent.update(zip(map(_key, chunk), self._encode(chunk), strict=True))
        rows = [self._state(store, _key(text)) for text in texts]
        for old in list(self._recent)[: max(0, len(self._recent) - _REMEMBERED)]:
            del self._recent[old]
        device = self.model.device
        states = pad_sequence(rows, batch_first=True).to(device, torch.float32)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        return states, torch.arange(states.shape[1], device=device)[None, :] < lengths[:, None]

    def _state(self, store: FeatureStore, key: bytes) -> Tensor:
        return torch.from_numpy(np.array(store[key])) if key in store else self._recent[key]

    def _opened(self) -> FeatureStore:
        if self._store is None:
            name = hashlib.sha256(self.fingerprint.encode()).hexdigest()[:16]
            self._store = FeatureStore(cache_root() / "texts" / name, self.fingerprint, self.width)
        return self._store

    @torch.no_grad()
    def _encode(self, texts: list[str]) -> list[Tensor]:
        inputs = self.tokenizer(
            texts, padding=True, truncation=True, max_length=self.max_length + 1, return_tensors="pt"
        )
        inputs = inputs.to(self.model.device)
        with torch.autocast(self.model.device.type, enabled=False):
            hidden = self.model(**inputs).last_hidden_state
        mask = inputs["attention_mask"].unsqueeze(2)
        sentences = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
        states = []
        for sentence, row, length in zip(sentences, hidden, mask.sum(dim=(1, 2)).tolist(), strict=True):
            words = row[1 : length - 1]  # without [CLS] and [SEP]
            states.append(torch.cat([sentence[None], words]).half().cpu())
        return states


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
