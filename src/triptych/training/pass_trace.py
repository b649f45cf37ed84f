"""Which passes of a backbone a training step of a method calls, found by running it on made-up features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import normalize

from triptych.backbones.base import Backbone, BackboneShape, Composed
from triptych.backbones.cost import Pass, hooked_parameter_count, measure, parameter_bytes, parameter_count
from triptych.methods.base import Method, TripletBatch
from triptych.methods.registry import create

LATE = 9
"""An epoch in which every phase of every method has begun."""
_SMALL, _LARGE = 8, 16


@dataclass(frozen=True)
class Step:
    """What a training step of a method does, a triplet of its batch.

    Attributes:
        passes: how many items of each pass.
        macs: multiply-accumulates of the method's own layers and objectives.
        hooked_macs: the same as papers' profilers count them.
        saved_bytes: what these keep for the backward pass.
        parameters: trained parameters of the method's own.
        parameter_bytes: what all its parameters and buffers take.
        hooked_parameters: those that papers' profilers see.
        needs: ``pixels`` or ``counterfactuals`` beside the tokens.
    """

    passes: Mapping[Pass, float]
    macs: float
    hooked_macs: float
    saved_bytes: float
    parameters: int
    parameter_bytes: int
    hooked_parameters: int
    needs: frozenset[str] = field(default_factory=frozenset)

    def live(self) -> Step:
        """Return the step without a token cache: references, targets and counterfactuals are encoded in it."""
        encode = Pass("encode_images", gradient=False)
        images = 2.0 + ("counterfactuals" in self.needs)
        return replace(self, passes={**self.passes, encode: self.passes.get(encode, 0.0) + images})


def trace(
    name: str,
    switches: Mapping[str, Any],
    shape: BackboneShape,
    *,
    batch_size: int = 128,
    text_length: int = 32,
) -> list[Step]:
    """Run steps of a method on made-up features: two of its first epoch, and two of a late one.

    The two have 8 and 16 triplets; what a batch of ``batch_size`` would do lies on the line through both.

    Args:
        name: of the method.
        switches: its settings.
        shape: the backbone's sizes.
        batch_size: triplets a step.
        text_length: tokens a text.

    Returns:
        A step of the first epoch and one of a late epoch; they are alike where the method has no phases.

    Raises:
        UsageError: method or switch is unknown, or they do not fit the backbone.
    """
    recorder = Recorder(shape, text_length)
    method = create(name, switches, shape)
    large, small = made_up_batch(shape, _LARGE), made_up_batch(shape, _SMALL)
    steps = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        method.remember(large.triplet_ids)
        for epoch in range(LATE + 1):
            begin_epoch(method, recorder, large, epoch)
            if epoch == LATE - 1:
                method.losses(large, recorder)  # something to remember
            if epoch in (0, LATE):
                pair = [_step(method, recorder, batch) for batch in (small, large)]
                steps.append(_at(batch_size, *pair))
    return steps


def _at(batch_size: int, small: Step, large: Step) -> Step:
    """Return the step of another batch size, a triplet of its batch."""

    def line(at_small: float, at_large: float) -> float:
        slope = (_LARGE * at_large - _SMALL * at_small) / (_LARGE - _SMALL)
        fixed = _SMALL * (at_small - slope)
        return max(slope + fixed / batch_size, 0.0)

    passes = {
        what: line(small.passes.get(what, 0.0), large.passes.get(what, 0.0))
        for what in {**small.passes, **large.passes}
    }
    return replace(
        large,
        passes=passes,
        macs=line(small.macs, large.macs),
        hooked_macs=line(small.hooked_macs, large.hooked_macs),
        saved_bytes=line(small.saved_bytes, large.saved_bytes),
    )


@dataclass
class _Context:
    """What a method may ask at the start of an epoch."""

    backbone: Backbone
    batch: TripletBatch
    epoch: int
    epochs: int = LATE + 3
    seed: int = 0
    resumed: bool = False

    def scoring(self) -> Iterator[TripletBatch]:
        """Yield the triplets once."""
        return iter([self.batch])


def begin_epoch(method: Method, backbone: Backbone, batch: TripletBatch, epoch: int) -> None:
    """Let a method prepare an epoch whose data is one batch; method and backbone are in train mode then."""
    if method.memory is not None:
        method.memory.begin_epoch(epoch, resumed=False)
    method.eval()
    backbone.eval()
    with torch.no_grad():
        method.begin_epoch(_Context(backbone, batch, epoch))
    method.train()
    backbone.train()


def _step(method: Method, recorder: Recorder, batch: TripletBatch) -> Step:
    recorder.calls.clear()
    cost = measure(
        method,
        lambda: method.losses(batch, recorder).total(),
        peak=False,
        kernels=False,
        ignored=recorder.given,
    )
    return Step(
        passes={what: items / len(batch) for what, items in recorder.calls.items()},
        macs=cost.macs / len(batch),
        hooked_macs=cost.hooked_macs / len(batch),
        saved_bytes=cost.saved_bytes / len(batch),
        parameters=parameter_count(method, trained=True),
        parameter_bytes=parameter_bytes(method),
        hooked_parameters=hooked_parameter_count(method, cost.modules),
        needs=frozenset(method.needs(method.epoch)),
    )


def made_up_batch(shape: BackboneShape, size: int) -> TripletBatch:
    """Make a batch of random tokens and pixels in a backbone's shape."""
    draws = torch.Generator().manual_seed(0)
    side = shape.image_size

    def tokens() -> Tensor:
        return torch.randn(size, shape.image_tokens, shape.image_width, generator=draws)

    return TripletBatch(
        triplet_ids=tuple(str(row) for row in range(size)),
        texts=tuple(f"make it number {row}" for row in range(size)),
        reference_tokens=tokens(),
        target_tokens=tokens(),
        generator=torch.Generator().manual_seed(1),
        reference_pixels=torch.rand(size, 3, side, side, generator=draws),
        target_pixels=torch.rand(size, 3, side, side, generator=draws),
        counterfactual_tokens=tokens(),
    )


class Recorder(Backbone):
    """Stands for a backbone: gives made-up features of the right shapes and counts the items of each pass.

    Args:
        shape: the sizes.
        text_length: tokens a text.
    """

    name = "recorder"
    fingerprint = "recorder"

    def __init__(self, shape: BackboneShape, text_length: int) -> None:
        super().__init__()
        self.shape, self.text_length = shape, text_length
        self.query_tokens = nn.Parameter(torch.randn(1, shape.queries, shape.hidden))
        self.register_buffer("pixel_mean", torch.full((3,), 0.5))
        self.register_buffer("pixel_std", torch.full((3,), 0.25))
        self.calls: Counter[Pass] = Counter()
        self.given: set[int] = set()
        """Storages that passes gave: where a loss keeps them, the pass kept them already."""
        self._held: list[Tensor] = []

    def preprocess(self, image: Image.Image) -> np.ndarray:
        """Give grey pixels."""
        return np.full((3, self.shape.image_size, self.shape.image_size), 0.5, dtype=np.float32)

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Count the pictures that the tower would encode."""
        self._note("encode_images", len(pixels), gradient=False)
        return torch.randn(len(pixels), self.shape.image_tokens, self.shape.image_width)

    def vision(self, tokens: Tensor) -> Tensor:
        """Count the trained layers on top of the tower."""
        self._note("vision", len(tokens))
        return self._made(*tokens.shape)

    def look(self, vision_tokens: Tensor) -> Tensor:
        """Count an image pass behind :meth:`vision`."""
        self._note("look", len(vision_tokens))
        return self._looks(len(vision_tokens))

    def look_attentively(self, vision_tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Count the same with attentions."""
        self._note("look_attentively", len(vision_tokens))
        queries = self.shape.queries
        attention = torch.rand(len(vision_tokens), queries, queries).softmax(dim=-1)
        return self._looks(len(vision_tokens)), attention

    def image_pass(self, tokens: Tensor) -> Tensor:
        """Count an image pass."""
        self._note("image_pass", len(tokens))
        return self._looks(len(tokens))

    def as_targets(self, looks: Tensor) -> Tensor:
        """Count a projection."""
        self._note("as_targets", len(looks))
        return self._made(len(looks), self.shape.queries, self.shape.dim, unit=True)

    def targets(self, tokens: Tensor) -> Tensor:
        """Count an image pass with its projection."""
        self._note("targets", len(tokens))
        return self._made(len(tokens), self.shape.queries, self.shape.dim, unit=True)

    def compose(
        self,
        tokens: Tensor,
        texts: Sequence[str],
        query_tokens: Tensor | None = None,
        *,
        attention: bool = False,
    ) -> Composed:
        """Count a fusion pass."""
        self._note("compose", len(tokens), attention=attention)
        return self._composed(len(tokens), self.text_length, attention)

    def refine(self, query_tokens: Tensor, texts: Sequence[str] | Tensor) -> Composed:
        """Count a pass without an image."""
        self._note("refine", len(query_tokens))
        return self._composed(
            len(query_tokens), texts.shape[1] if isinstance(texts, Tensor) else self.text_length
        )

    def prompt(self, prompt_tokens: Tensor, texts: Sequence[str]) -> Tensor:
        """Count a prompt pass."""
        self._note("prompt", len(texts), tokens=prompt_tokens.shape[-2])
        return self._made(len(texts), self.shape.dim, unit=True)

    def word_embeddings(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Count a look-up of words."""
        self._note("word_embeddings", len(texts))
        return self._words(len(texts))

    def text_pass(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Count a text pass."""
        self._note("text_pass", len(texts))
        return self._words(len(texts))

    def text(self, texts: Sequence[str]) -> Tensor:
        """Count a text pass with its projection."""
        self._note("text", len(texts))
        return self._made(len(texts), self.shape.dim, unit=True)

    def text_and_states(self, texts: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Count the same, of which the states are kept."""
        self._note("text_and_states", len(texts))
        return self._made(len(texts), self.shape.dim, unit=True), *self._words(len(texts))

    def pool_images(self, vision_tokens: Tensor) -> Tensor:
        """Count an image pass to one vector."""
        self._note("pool_images", len(vision_tokens))
        return self._made(len(vision_tokens), self.shape.dim)

    def pool_texts(self, texts: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Count a text pass to one vector, of which the states are kept."""
        self._note("pool_texts", len(texts))
        return self._made(len(texts), self.shape.dim), *self._words(len(texts))

    def _note(self, name: str, items: int, *, gradient: bool = True, **details: Any) -> None:
        self.calls[Pass(name, gradient and torch.is_grad_enabled(), **details)] += items

    def _made(self, *size: int, unit: bool = False) -> Tensor:
        made = torch.randn(*size)
        made = (normalize(made, dim=-1) if unit else made).requires_grad_(torch.is_grad_enabled())
        self.given.add(made.untyped_storage()._cdata)
        self._held.append(made)  # no other storage gets its number
        return made

    def _looks(self, items: int) -> Tensor:
        return self._made(items, self.shape.queries, self.shape.hidden)

    def _words(self, items: int) -> tuple[Tensor, Tensor]:
        mask = torch.ones(items, self.text_length, dtype=torch.int64)
        return self._made(items, self.text_length, self.shape.hidden), mask

    def _composed(self, items: int, length: int, attention: bool = False) -> Composed:
        shape, whole = self.shape, self.shape.queries + length
        return Composed(
            vector=self._made(items, shape.dim, unit=True),
            tokens=self._made(items, shape.queries, shape.dim, unit=True),
            hidden=self._made(items, whole, shape.hidden),
            text_mask=torch.ones(items, length, dtype=torch.int64),
            attention=torch.rand(items, whole, whole).softmax(dim=-1) if attention else None,
        )
