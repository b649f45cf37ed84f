"""VisionTower: a frozen vision transformer of transformers, whose last blocks may be left out to be trained."""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

import torch
from torch import Tensor, nn

_CPU_CHUNK, _CHUNK = 8, 128


class VisionTower(nn.Module):
    """Patch embedding and blocks of a vision model, frozen, without the final LayerNorm.

    Args:
        model: a ``Blip2VisionModel``, ``CLIPVisionModel`` or ``SiglipVisionModel``; its parts are taken over.
        trained_blocks: how many of the last blocks are left to the caller, by :meth:`rest`.
    """

    def __init__(self, model: Any, trained_blocks: int = 0) -> None:
        super().__init__()
        self.embeddings: nn.Module = model.embeddings
        if hasattr(model, "pre_layrnorm"):
            self.pre_layrnorm: nn.Module = model.pre_layrnorm
        blocks = list(model.encoder.layers)
        kept = len(blocks) - trained_blocks
        self.layers = nn.ModuleList(blocks[:kept])
        self._rest = blocks[kept:]
        self.requires_grad_(False).eval()

    def rest(self) -> nn.ModuleList:
        """Hand over the blocks that are trained."""
        rest, self._rest = self._rest, []
        return nn.ModuleList(rest)

    def train(self, mode: bool = True) -> VisionTower:
        """Stay in eval mode: the tower is frozen."""
        return super().train(False)

    @torch.no_grad()  # not inference mode: a method may train on what it encodes in a step
    def forward(self, pixels: Tensor) -> Tensor:
        """Encode normalised ``[B, 3, H, W]`` to ``[B, P, V]`` in the tower's precision, some pictures at a time."""
        chunk = _CPU_CHUNK if pixels.device.type == "cpu" else _CHUNK
        with torch.autocast(pixels.device.type, enabled=False):
            return torch.cat([self._encode(part) for part in torch.split(pixels, chunk)])

    def _encode(self, pixels: Tensor) -> Tensor:
        hidden = self.embeddings(pixels.to(self.dtype))
        if hasattr(self, "pre_layrnorm"):
            hidden = self.pre_layrnorm(hidden)
        return run_blocks(self.layers, hidden)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of its weights."""
        return next(self.parameters()).dtype

    @property
    def is_meta(self) -> bool:
        """Whether its weights hold nothing."""
        return any(value.is_meta for value in self.parameters())

    def digest(self) -> str:
        """Return 12 digits of a SHA-256 of the weights as they are held; zeros where they hold nothing (meta)."""
        if self.is_meta:
            return "0" * 12
        digest = hashlib.sha256()
        for name, value in sorted(self.named_parameters()):
            bits = value.detach().float().contiguous().view(torch.int32)
            digest.update(f"{name} {tuple(value.shape)} {int(bits.sum(dtype=torch.int64))}".encode())
            digest.update(bits.flatten()[:256].numpy(force=True).tobytes())
        return digest.hexdigest()[:12]


def run_blocks(blocks: nn.ModuleList, hidden: Tensor) -> Tensor:
    """Run blocks of a vision tower over ``[B, P, V]``, every token read by every other."""
    for block in blocks:
        takes_mask = "attention_mask" in inspect.signature(type(block).forward).parameters
        hidden = block(hidden, attention_mask=None) if takes_mask else block(hidden)
    return hidden


def restore_positions(module: nn.Module) -> None:
    """Give the position numbers of a module that was built on the meta device, which no file holds."""
    for owner in module.modules():
        for name, buffer in list(owner.named_buffers(recurse=False)):
            if buffer.is_meta and name == "position_ids":
                owner.register_buffer(name, torch.arange(buffer.shape[-1]).expand(1, -1), persistent=False)
