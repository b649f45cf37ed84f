"""SplitBackbone: every pass of a backbone in parts, so that a batch may be larger than a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from triptych.backbones.base import Backbone, Composed
from triptych.randomness import derive_seed
from triptych.training.processes import Processes

Run = Callable[..., tuple[Tensor, ...]]


class SplitBackbone(Backbone):
    """Gives what a backbone gives, and computes it in parts.

    Each process runs its share of the rows, and all of them get all results. Within a process ``micro_batch`` rows
    run at once; what they need for their gradient is dropped and computed again when the gradient arrives, so that
    the activations of one micro-batch are alive at a time (the two passes of GradCache, for any loss). Gradients
    are those of the whole batch, however it is cut; those of the backbone's parameters are this process's share of
    them and must be summed over the processes.

    Rows must not depend on each other within a pass. Text positions beyond a part's longest text are zero, as
    padding. Dropout is drawn anew for each part, the same in both passes.

    Args:
        whole: the backbone.
        processes: what shares the rows.
        micro_batch: rows at once; None = all of a process's share.

    Source: GradCache (Gao et al., RepL4NLP 2021) for the two passes.
    """

    def __init__(self, whole: Backbone, processes: Processes, micro_batch: int | None = None) -> None:
        super().__init__()
        self.whole = whole
        self.processes, self.micro_batch = processes, micro_batch
        self.name, self.shape, self.fingerprint = whole.name, whole.shape, whole.fingerprint
        self.frozen, self.default_learning_rate = whole.frozen, whole.default_learning_rate
        self._step, self._passes = -1, 0

    def __getattr__(self, name: str) -> Any:
        """Find parameters, buffers and whatever else a pass does not name in the backbone."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("whole"), name)

    def begin_step(self) -> None:
        """Count the passes of a step from its start: a step that is repeated draws what it drew."""
        self._step = -1

    def preprocess(self, image: Image.Image) -> np.ndarray:
        """Preprocess as the backbone."""
        return self.whole.preprocess(image)

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Encode as the backbone."""
        return self._one(self.whole.encode_images, pixels)

    def vision(self, tokens: Tensor) -> Tensor:
        """Run the trained layers on top of the tower."""
        return self._one(self.whole.vision, tokens)

    def look(self, vision_tokens: Tensor) -> Tensor:
        """Run the learned queries over vision tokens."""
        return self._one(self.whole.look, vision_tokens)

    def look_attentively(self, vision_tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Run the learned queries, and give the last self-attention."""
        looks, attention = self._rows(self.whole.look_attentively, vision_tokens)
        return looks, attention

    def image_pass(self, tokens: Tensor) -> Tensor:
        """Run the learned queries over frozen tokens."""
        return self._one(self.whole.image_pass, tokens)

    def as_targets(self, looks: Tensor) -> Tensor:
        """Project looks to targets."""
        return self._one(self.whole.as_targets, looks)

    def targets(self, tokens: Tensor) -> Tensor:
        """Embed images as targets."""
        return self._one(self.whole.targets, tokens)

    def compose(
        self,
        tokens: Tensor,
        texts: Sequence[str],
        query_tokens: Tensor | None = None,
        *,
        attention: bool = False,
    ) -> Composed:
        """Fuse references and texts."""

        def run(tokens: Tensor, texts: Sequence[str], queries: Tensor | None) -> tuple[Tensor, ...]:
            return _fields(self.whole.compose(tokens, texts, queries, attention=attention))

        return Composed(*self._rows(run, tokens, texts, common=[query_tokens], ragged=True))

    def refine(self, query_tokens: Tensor, texts: Sequence[str] | Tensor) -> Composed:
        """Fuse query tokens with texts without an image."""

        def run(queries: Tensor, texts: Sequence[str] | Tensor) -> tuple[Tensor, ...]:
            return _fields(self.whole.refine(queries, texts))

        return Composed(*self._rows(run, query_tokens, texts, ragged=not isinstance(texts, Tensor)))

    def prompt(self, prompt_tokens: Tensor, texts: Sequence[str]) -> Tensor:
        """Read a prompt of all texts ``[Q', H]``, or one each, with texts."""
        if prompt_tokens.ndim == 3 and len(prompt_tokens) == len(texts):
            return self._one(self.whole.prompt, prompt_tokens, texts)

        def run(texts: Sequence[str], prompt: Tensor) -> tuple[Tensor]:
            return (self.whole.prompt(prompt, texts),)

        return self._rows(run, texts, common=[prompt_tokens])[0]

    def word_embeddings(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Embed words, all texts in every process: padding is as the backbone has it."""
        words, mask = self.whole.word_embeddings(texts)
        if words.requires_grad:
            words.register_hook(lambda gradient: gradient / self.processes.count)  # type: ignore[no-untyped-call]
        return words, mask

    def text_pass(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Read texts alone."""
        hidden, mask = self._rows(self.whole.text_pass, texts, ragged=True)
        return hidden, mask

    def text(self, texts: Sequence[str]) -> Tensor:
        """Embed texts alone."""
        return self._one(self.whole.text, texts)

    def text_and_states(self, texts: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Embed texts and keep what was read."""
        vector, hidden, mask = self._rows(self.whole.text_and_states, texts, ragged=True)
        return vector, hidden, mask

    def pool_images(self, vision_tokens: Tensor) -> Tensor:
        """Embed images by one vector each, as the backbone does."""
        return self._one(self.whole.pool_images, vision_tokens)

    def pool_texts(self, texts: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Embed texts by one vector each, as the backbone does."""
        vector, hidden, mask = self._rows(self.whole.pool_texts, texts, ragged=True)
        return vector, hidden, mask

    def prepare_texts(self, texts: Iterable[str], progress: Callable[[int, int], None] | None = None) -> None:
        """Prepare as the backbone."""
        self.whole.prepare_texts(texts, progress)

    def trained_state(self) -> dict[str, Tensor]:
        """Return the backbone's state."""
        return self.whole.trained_state()

    def load_trained_state(self, state: dict[str, Tensor]) -> None:
        """Load the backbone's state."""
        self.whole.load_trained_state(state)

    @property
    def device(self) -> torch.device:
        """Where the backbone's weights are."""
        return self.whole.device

    def _one(self, run: Callable[..., Tensor], *rows: Tensor | Sequence[str]) -> Tensor:
        return self._rows(lambda *given: (run(*given),), *rows)[0]

    def _rows(
        self,
        run: Run,
        *rows: Tensor | Sequence[str],
        common: Sequence[Tensor | None] = (),
        ragged: bool = False,
    ) -> tuple[Tensor, ...]:
        """Run a pass in parts.

        Args:
            run: takes a part of each of ``rows``, then ``common``.
            rows: what has a row each triplet.
            common: what all rows read.
            ragged: whether results are as long as the longest text of a part.
        """
        total = len(rows[0])
        own = [self._own(each) for each in rows]
        shared = [None if each is None else self.processes.common(each) for each in common]
        count = len(own[0])
        size = min(self.micro_batch or count, count)
        turn = self._turn()

        def part(first: int, *given: Any) -> tuple[Tensor, ...]:
            with self._draws(derive_seed(*turn, first)):
                return run(*given, *shared)

        offset = self.processes.share(total).start
        parts = []
        for start in range(0, count, size):
            given = [each[start : start + size] for each in own]
            if size < count and torch.is_grad_enabled():
                done = checkpoint(part, offset + start, *given, use_reentrant=False, preserve_rng_state=False)
            else:
                done = part(offset + start, *given)
            parts.append(done)
        return self._together(parts, total, ragged)

    def _own(self, rows: Tensor | Sequence[str]) -> Tensor | Sequence[str]:
        """Take this process's rows; where there are fewer rows than processes, a spare one that does not count."""
        share = self.processes.share(len(rows))
        if not isinstance(rows, Tensor):
            return rows[share] or rows[:1]
        own = self.processes.cut(rows)
        return own if len(own) else torch.cat([own, rows[:1].detach()])

    def _together(self, parts: Sequence[tuple[Tensor, ...]], total: int, ragged: bool) -> tuple[Tensor, ...]:
        """Join the parts of all processes, padded to the longest, and drop spare rows."""
        share = self.processes.share(total)
        columns = list(zip(*parts, strict=True))
        shapes = [[part.shape[1:] for part in column] for column in columns]
        lengths = [max(sizes) for each in shapes for sizes in zip(*each, strict=True)]
        longest = iter(self.processes.largest(lengths) if ragged else lengths)
        joined = []
        for column in columns:
            wanted = [next(longest) for _ in column[0].shape[1:]]
            filled = [_padded(each, wanted) for each in column]
            own = torch.cat(filled) if len(filled) > 1 else filled[0]
            joined.append(self.processes.gather(own[: share.stop - share.start], total))
        return tuple(joined)

    def _turn(self) -> tuple[int, int]:
        """Name this pass, for its draws: the seed of the step (torch's), and how many passes it had before."""
        step = torch.initial_seed()
        self._passes = self._passes + 1 if step == self._step else 0
        self._step = step
        return step, self._passes

    @contextmanager
    def _draws(self, seed: int) -> Iterator[None]:
        """Let dropout be drawn from a seed, and leave the generators as they were."""
        if not self.training:
            yield
            return
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            yield


def _fields(composed: Composed) -> tuple[Tensor, ...]:
    fields = composed.vector, composed.tokens, composed.hidden, composed.text_mask
    return fields if composed.attention is None else (*fields, composed.attention)


def _padded(part: Tensor, wanted: Sequence[int]) -> Tensor:
    """Fill up all axes but the first with zeros."""
    missing = [size - have for size, have in zip(wanted, part.shape[1:], strict=True)]
    if not any(missing):
        return part
    return pad(part, [side for count in reversed(missing) for side in (0, count)])
