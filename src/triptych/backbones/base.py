"""Backbone: what every method may call to turn pictures and texts into features."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import normalize

from triptych.backbones.preprocessing import Preprocessing


@dataclass(frozen=True)
class BackboneShape:
    """The sizes of a backbone.

    Attributes:
        queries: Q, learned query tokens.
        dim: D, width of the shared embedding.
        hidden: H, width of the Q-Former.
        image_tokens: P, frozen tokens of an image.
        image_width: V, width of a frozen token.
        image_size: side of the square input, in pixels.
        class_token: whether the first image token stands for the whole picture, as in a vision transformer.
        qformer: whether pictures and texts are composed by a Q-Former, which most methods need.
    """

    queries: int
    dim: int
    hidden: int
    image_tokens: int
    image_width: int
    image_size: int
    class_token: bool = False
    qformer: bool = True


@dataclass(frozen=True)
class Composed:
    """What a fusion of picture and text gives.

    Attributes:
        vector: ``[B, D]`` unit rows, the query vector c.
        tokens: ``[B, Q, D]`` unit rows, the query positions through the text projection (C).
        hidden: ``[B, Q + L, H]`` the last hidden states, query positions first.
        text_mask: ``[B, L]``, 1 where a text position is real.
        attention: ``[B, Q + L, Q + L]`` self-attention of the last layer (rows read columns), mean of the heads,
            no gradient; where it was asked for.
    """

    vector: Tensor
    tokens: Tensor
    hidden: Tensor
    text_mask: Tensor
    attention: Tensor | None = None


class Backbone(nn.Module, abc.ABC):
    """The passes of the specification (section 0), and nothing about losses.

    Frozen towers are the submodules named in ``frozen``; their weights come from their packages and are not written
    to a model folder. ``fingerprint`` names towers and preprocessing: tokens of two backbones with the same
    fingerprint are interchangeable.
    """

    name: str
    shape: BackboneShape
    fingerprint: str
    frozen: tuple[str, ...] = ()
    trained_tower: tuple[str, ...] = ()
    """Submodules that are the trained end of the vision tower: :meth:`vision` runs them, on tokens from before them."""
    default_learning_rate: float = 1e-5
    squared: Preprocessing = "target_pad"
    """How :meth:`preprocess` makes a picture a square."""
    query_tokens: nn.Parameter
    """``[1, Q, H]`` the learned queries."""
    pixel_mean: Tensor
    """``[3]`` channel means of the tower's input, for pixels in [0, 1]."""
    pixel_std: Tensor
    """``[3]`` channel deviations of the tower's input, for pixels in [0, 1]."""

    @abc.abstractmethod
    def preprocess(self, image: Image.Image) -> np.ndarray:
        """Turn an RGB picture into ``[3, H, W]`` float32 in [0, 1], not yet normalised."""

    @abc.abstractmethod
    def encode_images(self, pixels: Tensor) -> Tensor:
        """Encode ``[B, 3, H, W]`` pixels in [0, 1] into frozen tokens ``[B, P, V]``; no gradient."""

    @abc.abstractmethod
    def vision(self, tokens: Tensor) -> Tensor:
        """Run the trained layers on top of the tower: frozen ``[B, P, V]`` to ``[B, P, V]``."""

    @abc.abstractmethod
    def look(self, vision_tokens: Tensor) -> Tensor:
        """Run the learned queries over ``[B, P, V]`` of :meth:`vision`: ``[B, Q, H]``."""

    @abc.abstractmethod
    def look_attentively(self, vision_tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Give what :meth:`look` gives, and the last self-attention ``[B, Q, Q]``."""

    @abc.abstractmethod
    def image_pass(self, tokens: Tensor) -> Tensor:
        """Run the learned queries over ``[B, P, V]`` frozen image tokens: ``[B, Q, H]``."""

    @abc.abstractmethod
    def as_targets(self, looks: Tensor) -> Tensor:
        """Project what :meth:`look` gives, ``[B, Q, H]``, to targets ``[B, Q, D]``, unit rows (t)."""

    @abc.abstractmethod
    def targets(self, tokens: Tensor) -> Tensor:
        """Embed images as targets: ``[B, P, V]`` to ``[B, Q, D]``, unit rows (t)."""

    @abc.abstractmethod
    def compose(
        self,
        tokens: Tensor,
        texts: Sequence[str],
        query_tokens: Tensor | None = None,
        *,
        attention: bool = False,
    ) -> Composed:
        """Fuse ``[B, P, V]`` reference tokens with B texts; ``query_tokens`` ``[Q, H]`` replace the learned ones."""

    @abc.abstractmethod
    def refine(self, query_tokens: Tensor, texts: Sequence[str] | Tensor) -> Composed:
        """Fuse ``[B, Q, H]`` query tokens with texts without an image; ``[B, L, H]`` tokens may stand for words."""

    @abc.abstractmethod
    def prompt(self, prompt_tokens: Tensor, texts: Sequence[str]) -> Tensor:
        """Read ``[Q', H]`` prompt tokens with B texts, without an image: ``[B, D]``, unit rows."""

    @abc.abstractmethod
    def word_embeddings(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Embed words without their places: ``[B, L, H]``, and the mask ``[B, L]``."""

    @abc.abstractmethod
    def text_pass(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Read texts alone: the hidden states ``[B, L, H]`` (the first one stands for the text), and the mask."""

    @abc.abstractmethod
    def text(self, texts: Sequence[str]) -> Tensor:
        """Embed texts alone: ``[B, D]``, unit rows."""

    def text_and_states(self, texts: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Give what :meth:`text` and :meth:`text_pass` give, ``[B, D]``, ``[B, L, H]`` and the mask, in one pass."""
        return self.text(texts), *self.text_pass(texts)

    def pool_images(self, vision_tokens: Tensor) -> Tensor:
        """Embed images by one vector each, ``[B, P, V]`` of :meth:`vision` to ``[B, D]``: the unit mean of targets.

        A backbone with pooled embeddings of its own gives those, as they come.
        """
        targets = self.as_targets(self.look(vision_tokens))
        precise = targets.to(torch.promote_types(targets.dtype, torch.float32))
        return normalize(precise.mean(dim=1), dim=-1)

    def pool_texts(self, texts: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Embed texts by one vector each ``[B, D]``, to go with :meth:`pool_images`; states and mask beside."""
        return self.text_and_states(texts)

    def prepare_texts(self, texts: Iterable[str], progress: Callable[[int, int], None] | None = None) -> None:
        """Compute once what is frozen about texts; nothing where the text side is trained."""

    def trained_state(self) -> dict[str, Tensor]:
        """Return the state without the frozen towers: what a model folder holds."""
        prefixes = tuple(f"{name}." for name in self.frozen)
        return {
            key: value for key, value in self.state_dict().items() if not key.startswith(prefixes or ("\0",))
        }

    def load_trained_state(self, state: dict[str, Tensor]) -> None:
        """Load what :meth:`trained_state` gave.

        Raises:
            KeyError: a name is missing or unknown.
        """
        expected = set(self.trained_state())
        if missing := sorted(expected - set(state)):
            raise KeyError(f"weights missing: {missing[:5]}")
        if unknown := sorted(set(state) - expected):
            raise KeyError(f"weights unknown: {unknown[:5]}")
        self.load_state_dict(state, strict=False)

    @property
    def device(self) -> torch.device:
        """Where the backbone's weights are."""
        return self.pixel_mean.device
