"""Frozen word states of a text encoder, computed once a text and kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

Progress = Callable[[int, int], None]


class MiniLMStates(nn.Module):
    """all-MiniLM-L6-v2, frozen: per text its mean vector (the sentence embedding) and its word states.

    Position 0 is the sentence embedding, the word pieces follow; at most ``max_length`` positions. What was computed
    is kept in half precision, up to ``capacity`` texts (about 8 kB each); beyond that the oldest are forgotten.

    Args:
        folder: the model's folder (config, safetensors, tokenizer).
    """

    width = 384

    def __init__(self, folder: Path, *, max_length: int = 32, capacity: int = 200_000, batch_size: int = 64) -> None:
        super().__init__()
        from transformers import AutoTokenizer, BertModel

        self.tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        self.model = BertModel.from_pretrained(str(folder), local_files_only=True, add_pooling_layer=False)
        self.model.eval().requires_grad_(False)
        self.max_length, self.capacity, self.batch_size = max_length, capacity, batch_size
        self._states: dict[str, Tensor] = {}

    def train(self, mode: bool = True) -> MiniLMStates:
        """Stay in eval mode: the encoder is frozen."""
        return super().train(False)

    def prepare(self, texts: Iterable[str], progress: Progress | None = None) -> None:
        """Compute the states of the texts that are not there yet, in a fixed order.

        A state depends in its last bits on the texts it was batched with; a run that prepares the same texts in the
        same calls repeats them exactly.
        """
        missing = sorted(set(texts) - set(self._states), key=lambda text: (len(text), text))
        for start in range(0, len(missing), self.batch_size):
            chunk = missing[start : start + self.batch_size]
            self._states.update(zip(chunk, self._encode(chunk), strict=True))
            if progress:
                progress(min(start + self.batch_size, len(missing)), len(missing))
        for old in list(self._states)[: max(0, len(self._states) - self.capacity)]:
            del self._states[old]

    def forward(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return the states ``[B, L, 384]`` (float32, zero where padded) and the mask ``[B, L]``."""
        self.prepare(texts)
        rows = [self._states[text] for text in texts]
        device = self.model.device
        states = pad_sequence(rows, batch_first=True).to(device, torch.float32)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        return states, torch.arange(states.shape[1], device=device)[None, :] < lengths[:, None]

    @torch.no_grad()
    def _encode(self, texts: list[str]) -> list[Tensor]:
        inputs = self.tokenizer(texts, padding=True, truncation=True, max_length=self.max_length + 1, return_tensors="pt")
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
