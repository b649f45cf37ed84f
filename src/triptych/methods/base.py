"""Method: what a paper adds to a backbone, and the batch and losses that it speaks in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods.config import Ablation, About, MethodConfig
from triptych.methods.memory import TripletMemory
from triptych.objectives.probability import Temperature, match_probabilities, positive_and_negative
from triptych.objectives.similarity import similarity

CaptionMode = Literal["fixed", "random4"]
Needs = Literal["pixels", "counterfactuals"]


@dataclass(frozen=True)
class TripletBatch:
    """B triplets as a method sees them.

    Attributes:
        triplet_ids: B stable ids.
        texts: B modification texts, captions already joined and cleaned.
        reference_tokens: ``[B, P, V]`` frozen tokens of the references.
        target_tokens: ``[B, P, V]`` frozen tokens of the annotated targets.
        generator: CPU generator for every draw of this step.
        reference_pixels: ``[B, 3, H, W]`` in [0, 1], where the method asked for ``pixels``.
        target_pixels: the same of the targets.
        counterfactual_tokens: ``[B, P, V]``, one cached counterfactual of each reference, where the method
            asked for ``counterfactuals``.
        step: which step of the epoch this is, counted from 0.
    """

    triplet_ids: tuple[str, ...]
    texts: tuple[str, ...]
    reference_tokens: Tensor
    target_tokens: Tensor
    generator: torch.Generator
    reference_pixels: Tensor | None = None
    target_pixels: Tensor | None = None
    counterfactual_tokens: Tensor | None = None
    step: int = 0

    def __len__(self) -> int:
        return len(self.triplet_ids)


class Losses:
    """Named loss terms, each a value per triplet ``[B]`` with a weight.

    Attributes:
        diagnostics: figures of the batch to log beside the terms; no gradient.
        cleanliness: how far each triplet was trusted in this step, ``[B]`` in [0, 1]; the run records it.

    Example:
        >>> losses = Losses(robust=torch.tensor([1.0, 3.0]))
        >>> losses.add(soft=torch.tensor([2.0, 2.0]), weight=0.5)
        >>> losses.total().item()
        3.0
    """

    def __init__(self, **terms: Tensor) -> None:
        self._terms: dict[str, tuple[Tensor, float]] = {name: (value, 1.0) for name, value in terms.items()}
        self.diagnostics: dict[str, float | Tensor] = {}
        self.cleanliness: Tensor | None = None

    def add(self, weight: float = 1.0, **terms: Tensor) -> None:
        """Add terms with a weight."""
        for name, value in terms.items():
            self._terms[name] = (value, weight)

    def observe(self, **figures: Tensor) -> None:
        """Add diagnostics: the mean of each figure over the batch."""
        self.diagnostics.update({name: figure.detach().float().mean() for name, figure in figures.items()})

    def observe_match(self, scores: Tensor, temperature: Temperature = 0.07) -> None:
        """Observe p⁺ and p⁻ (INTENT eq. 6) of ``[B, B]`` similarities; p⁺ is trusted unless something else was."""
        positive, negative = positive_and_negative(match_probabilities(scores.detach(), temperature))
        self.observe(p_positive=positive, p_negative=negative)
        if self.cleanliness is None:
            self.trust(positive)

    def trust(self, cleanliness: Tensor) -> None:
        """Say how far each triplet was trusted, ``[B]`` in [0, 1]."""
        self.cleanliness = cleanliness.detach().float().clamp(0, 1)

    def __iter__(self) -> Iterator[tuple[str, Tensor, float]]:
        for name, (value, weight) in self._terms.items():
            yield name, value, weight

    def __getitem__(self, name: str) -> Tensor:
        return self._terms[name][0]

    def __contains__(self, name: object) -> bool:
        return name in self._terms

    def __len__(self) -> int:
        return len(self._terms)

    def total(self) -> Tensor:
        """Reduce to the scalar that is minimised: the weighted sum of the terms' means over the batch."""
        return torch.stack([weight * value.mean() for value, weight in self._terms.values()]).sum()


@dataclass(frozen=True)
class Phase:
    """What is trained in an epoch.

    Attributes:
        only: starts of parameter names, as ``method.prompt``, that alone are trained; empty = all.
        constant_rate: keep the peak learning rate, whatever the schedule says.
    """

    only: tuple[str, ...] = ()
    constant_rate: bool = False


class EpochContext(Protocol):
    """What a method may ask at the start of an epoch; the training loop provides it."""

    @property
    def epoch(self) -> int:
        """Which epoch starts, counted from 0."""
        ...

    @property
    def epochs(self) -> int:
        """How many there will be at most."""
        ...

    @property
    def seed(self) -> int:
        """The run's seed."""
        ...

    @property
    def resumed(self) -> bool:
        """Say whether the epoch goes on in its middle: what was remembered at its start is there."""
        ...

    @property
    def backbone(self) -> Backbone:
        """The backbone, in eval mode until :meth:`Method.begin_epoch` returns."""
        ...

    def scoring(self) -> Iterator[TripletBatch]:
        """Yield all training triplets once, in batches of a random order; the last batch may be short."""
        ...


class Method(nn.Module):
    """Owns what a paper adds; gets a backbone and a batch and gives named loss terms per triplet.

    Args:
        config: the switches.
        shape: the backbone's sizes, for layers of the method's own.
        seed: seeds the random start of such layers.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    """Title, venue and year."""
    summary: ClassVar[str]
    """One line for ``triptych methods``."""
    about: ClassVar[About]
    """What ``triptych methods show`` says."""
    ablations: ClassVar[Mapping[str, Ablation]] = {}
    """Rows of the paper's ablation tables by name, as ``A1``."""
    Config: ClassVar[type[MethodConfig]] = MethodConfig
    captions: ClassVar[CaptionMode] = "fixed"
    """How the captions of a triplet are joined in training, unless the user says otherwise."""
    qformer: ClassVar[bool] = True
    """Whether it needs a backbone that composes by a Q-Former."""
    counterfactual_bank: int = 0
    """Variants of each reference image that are cached before training; 0 = the method draws its own."""
    memory: TripletMemory | None = None
    """What the method keeps of each training triplet from epoch to epoch."""
    fixed_batches: bool = False
    """Whether the triplets are shuffled into batches once, and the batches keep their triplets."""

    def __init__(self, config: MethodConfig, shape: BackboneShape, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.shape = shape
        self.seed = seed
        self.epoch = 0

    @property
    def delayed(self) -> bool:
        """Whether the noise-robust term is still left out (``robust_from_epoch``)."""
        return self.epoch < self.config.robust_from_epoch

    def remember(self, triplet_ids: Sequence[str], folder: Path | None = None) -> None:
        """Make the memory of a training run's triplets; nothing for methods that keep none.

        Args:
            triplet_ids: the training triplets in the table's order.
            folder: keep it there in mapped files instead of in RAM.
        """

    def begin_epoch(self, context: EpochContext) -> None:
        """Prepare an epoch: partition, phase change. No gradient; module and backbone are in eval mode."""
        self.epoch = context.epoch

    def phase(self, epoch: int) -> Phase:
        """Say what is trained in an epoch."""
        return Phase()

    def rate(self, parameter: str) -> float:
        """Give the factor of a parameter's learning rate; names start with ``method.`` or ``backbone.``."""
        return 1.0

    def needs(self, epoch: int) -> frozenset[Needs]:
        """Name what the batches of an epoch must carry beside tokens and texts."""
        return frozenset()

    def reads(self, epoch: int, texts: Sequence[str]) -> Iterable[str]:
        """Name the texts that an epoch reads beside those of its triplets, which are given."""
        return ()

    def counterfactual(
        self,
        reference_pixels: Tensor,
        irrelevant_pixels: Tensor,
        backbone: Backbone,
        generator: torch.Generator,
    ) -> Tensor:
        """Draw a counterfactual of each reference, ``[B, 3, H, W]`` in [0, 1]; for methods that intervene."""
        raise NotImplementedError

    def losses(self, batch: TripletBatch, backbone: Backbone) -> Losses:
        """Return the loss terms of a batch, a value per triplet each."""
        raise NotImplementedError

    def query(self, tokens: Tensor, texts: Sequence[str], backbone: Backbone) -> Tensor:
        """Embed queries for ranking: reference tokens ``[B, P, V]`` and B texts to ``[B, D]``, unit rows."""
        return backbone.compose(tokens, texts).vector

    def text_query(self, texts: Sequence[str], backbone: Backbone) -> Tensor:
        """Embed texts that have no reference, for search by text: ``[B, D']``, unit rows, as :meth:`query`."""
        return backbone.text(texts)

    def targets(self, tokens: Tensor, backbone: Backbone) -> Tensor:
        """Embed a gallery for ranking: tokens ``[N, P, V]`` to ``[N, Q', D']``, rows of length 1 at most.

        A method with other targets than the backbone's may choose Q' and D'; its queries have the same D'.
        """
        return backbone.targets(tokens)

    @torch.no_grad()
    def cleanliness(self, batch: TripletBatch, backbone: Backbone) -> Tensor:
        """Say how far each triplet is trusted, ``[B]`` in [0, 1], 1 = trusted.

        By default the annotated pair's share of the row softmax at temperature 0.07.
        """
        queries = self.query(batch.reference_tokens, batch.texts, backbone)
        scores = similarity(queries, self.targets(batch.target_tokens, backbone))
        return torch.softmax(scores / 0.07, dim=1).diagonal()
