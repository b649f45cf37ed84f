"""Plan: what a training run will take of memory, disk and time, from its settings alone."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from triptych.backbones.base import Backbone
from triptych.backbones.cost import (
    Cost,
    Pass,
    PassCosts,
    hooked_parameter_count,
    parameter_bytes,
    parameter_count,
    planned_backbone,
)
from triptych.backbones.registry import configure as configure_backbone
from triptych.backbones.shard import entry_bytes
from triptych.errors import UsageError
from triptych.methods.registry import configure as configure_method
from triptych.methods.registry import refuse_unfit
from triptych.training.pass_trace import Step, trace

ENCODE = Pass("encode_images", gradient=False)
_ADAM_STATES, _FLOAT = 2, 4
_TOWER_CHUNK = {"cpu": 8, "cuda": 128}
_USUAL_LENGTH = 32
_READ_AHEAD = 2
"""Batches in memory: the present one, and the next, which is read meanwhile."""
MICRO_BATCHES = (64, 32, 16, 8, 4, 2)


@dataclass(frozen=True)
class Options:
    """How a run is trained, as far as its cost depends on it.

    Attributes:
        batch_size: triplets a step.
        micro_batch: triplets at once, with cached contrastive gradients; None = all.
        precision: ``no``, ``bf16`` or ``fp16`` autocast.
        checkpointing: gradient checkpointing of the Q-Former.
        cached: whether image tokens come from the cache, and counterfactuals from its bank.
        bank: counterfactuals an image in the cache.
        device: ``cuda`` or ``cpu``.
    """

    batch_size: int = 128
    micro_batch: int | None = None
    precision: str = "no"
    checkpointing: bool = False
    cached: bool = True
    bank: int = 0
    device: str = "cuda"

    @property
    def at_once(self) -> int:
        """How many triplets are in memory with all that their backward pass needs."""
        return min(self.micro_batch or self.batch_size, self.batch_size)


@dataclass(frozen=True)
class Memory:
    """Bytes of a training step at its peak.

    Attributes:
        parameters: weights and buffers.
        gradients: of what is trained.
        optimiser: AdamW's two moments.
        activations: what the backward pass needs.
        tokens: of images, and their pixels where those are needed.
        workspace: the largest of what comes and goes. On a GPU the vision tower's layers, or AdamW's temporary of all
            weights. On a CPU also the holes that the C library's heap keeps between activations and gradients: about
            the gradients once more, and the dense gradient of the largest table (measured with glibc at three sizes).
    """

    parameters: float
    gradients: float
    optimiser: float
    activations: float
    tokens: float
    workspace: float

    @property
    def total(self) -> float:
        """The peak."""
        return float(sum(vars(self).values()))


@dataclass(frozen=True)
class Plan:
    """What a run takes.

    Attributes:
        options: how it is trained.
        memory: of a training step, bytes.
        parameters: all, trained, and as papers' profilers count them.
        gmacs: multiply-accumulates: of a triplet's training forward and of an inference query, each as papers
            print it (``hooked``) and true.
        step_flops: floating-point operations of a training step.
        token_bytes: an image's tokens on disk, by dtype.
        advice: what to change so that it fits, each with the bytes that are left; empty where it fits.
    """

    options: Options
    memory: Memory
    parameters: Mapping[str, int]
    gmacs: Mapping[str, float]
    step_flops: float
    token_bytes: Mapping[str, int]
    advice: tuple[tuple[str, float], ...] = field(default=())


class Planner:
    """Plans runs of one method on one backbone.

    Args:
        backbone: ``{"name": ..., sizes}``.
        method: ``{"name": ..., switches}``.
        options: how it is trained.

    Raises:
        UsageError: a setting is unknown or does not fit.
    """

    def __init__(self, backbone: Mapping[str, Any], method: Mapping[str, Any], options: Options) -> None:
        switches = {key: value for key, value in method.items() if key != "name"}
        self.method_name = str(method.get("name", "intent"))
        name = str(backbone.get("name", "lite"))
        refuse_unfit(self.method_name, name)
        if options.bank:
            if "counterfactual_bank" not in type(configure_method(self.method_name, switches)).model_fields:
                raise UsageError(f"method {self.method_name} has no counterfactuals: leave out --bank")
            switches["counterfactual_bank"] = options.bank
        configure_method(self.method_name, switches)
        sizes = {key: value for key, value in backbone.items() if key != "name"}
        if sizes.get("weights", "") is not None:
            configure_backbone(name, {"weights": None, **sizes} if name == "blip2-vitl" else sizes)
        self.options = options
        self.settings = dict(backbone)
        self.backbone: Backbone = planned_backbone(backbone)
        self.length = _text_length(self.backbone)
        self.steps = trace(
            self.method_name,
            switches,
            self.backbone.shape,
            batch_size=options.batch_size,
            text_length=self.length,
        )
        self._costs: dict[tuple[str, str, bool], PassCosts] = {}

    def plan(self, memory: float | None = None) -> Plan:
        """Predict; where ``memory`` bytes are given and do not suffice, say what to change."""
        options = self.options
        taken = self.memory(options)
        advice = self._advice(memory) if memory is not None and taken.total > memory else ()
        return Plan(
            options,
            taken,
            self.parameters(),
            self.gmacs(),
            self.step_flops(options),
            {
                kind: entry_bytes(self.backbone.shape.image_tokens, self.backbone.shape.image_width, kind)
                for kind in ("float16", "int8")
            },
            advice,
        )

    def memory(self, options: Options) -> Memory:
        """Predict the memory of a training step, from the second on: the first has no gradients yet to keep."""
        return max((self._memory(options, step) for step in self.steps), key=lambda found: found.total)

    def parameters(self) -> dict[str, int]:
        """Count parameters: all, trained, and as papers' profilers do (specification 2.7)."""
        step = self.steps[0]
        return {
            "all": parameter_count(self.backbone) + step.parameters,
            "trained": parameter_count(self.backbone, trained=True) + step.parameters,
            "hooked": hooked_parameter_count(self.backbone) + step.hooked_parameters,
        }

    def gmacs(self) -> dict[str, float]:
        """Count multiply-accumulates in 10^9, of a triplet's training forward and of an inference query."""
        step = self.steps[0].live()
        costs = self._pass_costs(self.options)
        query = costs(ENCODE), costs(Pass("compose")) if self.backbone.shape.qformer else Cost()
        return {
            "training_hooked": (self._sum(step, "hooked_macs") + step.hooked_macs) / 1e9,
            "training": (self._sum(step, "macs") + step.macs) / 1e9,
            "query_hooked": sum(cost.hooked_macs for cost in query) / 1e9,
            "query": sum(cost.macs for cost in query) / 1e9,
        }

    def step_flops(self, options: Options) -> float:
        """Count the operations of a step, two a multiply-accumulate: forward, twice that backward, and repeats."""
        found = 0.0
        for step in self.steps:
            costs, total = self._pass_costs(options), 0.0
            for what, items in self._passes(step, options).items():
                repeats = (
                    (3 + options.checkpointing + (options.at_once < options.batch_size))
                    if what.gradient
                    else 1
                )
                total += items * costs(what).macs * repeats
            found = max(found, 2 * options.batch_size * (total + 3 * step.macs))
        return found

    def _memory(self, options: Options, step: Step) -> Memory:
        shape, costs, at_once = self.backbone.shape, self._pass_costs(options), options.at_once
        trained = parameter_count(self.backbone, trained=True) + step.parameters
        half = options.precision != "no"
        passes = {
            what: n for what, n in self._passes(step, options).items() if what.gradient or what == ENCODE
        }
        again = max((self._again(what, options) for what in passes), default=0.0)
        encoded = passes.get(ENCODE, 0.0) * options.batch_size
        tower = costs(ENCODE).peak_bytes * min(encoded, _TOWER_CHUNK[options.device]) if encoded else 0.0
        image = shape.image_tokens * shape.image_width * _FLOAT
        images = 2 + ("counterfactuals" in step.needs)
        ahead = _READ_AHEAD if options.device == "cpu" else 1
        tokens = options.batch_size * images * image * ahead + encoded * image
        pixels = 3 * shape.image_size**2 * _FLOAT
        if "pixels" in step.needs or not options.cached:
            tokens += options.batch_size * 2 * pixels * ahead
        if at_once < options.batch_size:  # one part of one pass is kept, and what all passes give
            kept = max((costs(what).saved_bytes for what in passes), default=0.0)
            given = sum(n * self._positions(what) for what, n in passes.items() if what.gradient)
            given *= options.batch_size * shape.hidden * _FLOAT
        else:
            kept, given = sum(n * costs(what).saved_bytes for what, n in passes.items()), 0.0
        activations = at_once * (kept + again) + options.batch_size * step.saved_bytes + given
        activations += 2 * trained if half else 0
        heap = options.device == "cpu"
        spare = _FLOAT * (trained + self._largest()) if heap else _FLOAT * trained - activations
        return Memory(
            parameters=parameter_bytes(self.backbone) + step.parameter_bytes,
            gradients=_FLOAT * trained,
            optimiser=_ADAM_STATES * _FLOAT * trained,
            activations=activations,
            tokens=tokens,
            workspace=max(tower, spare, 0.0),
        )

    def _again(self, what: Pass, options: Options) -> float:
        """Return what one layer of the Q-Former keeps while it is run again for its gradient."""
        qformer: Any = getattr(self.backbone, "qformer", None)
        if not (what.gradient and options.checkpointing and qformer is not None):
            return 0.0
        whole = self._pass_costs(replace(options, checkpointing=False))(what).saved_bytes
        return (whole - self._pass_costs(options)(what).saved_bytes) / len(qformer.encoder.layer)

    def _largest(self) -> int:
        """Count the values of the largest trained tensor."""
        return max((p.numel() for p in self.backbone.parameters() if p.requires_grad), default=0)

    def _positions(self, what: Pass) -> int:
        """Return how many positions a pass gives."""
        if what.name == "vision":
            return self.backbone.shape.image_tokens
        reads_text = what.name not in (
            "look",
            "look_attentively",
            "image_pass",
            "as_targets",
            "targets",
            "pool_images",
        )
        return (what.tokens or self.backbone.shape.queries) + (self.length if reads_text else 0)

    def _passes(self, step: Step, options: Options) -> Mapping[Pass, float]:
        return (step if options.cached else step.live()).passes

    def _sum(self, step: Step, figure: str) -> float:
        """Add up what the passes of a training forward cost a triplet; those for statistics alone are left out."""
        costs = self._pass_costs(self.options)
        counted = {what: n for what, n in step.passes.items() if what.gradient or what == ENCODE}
        return sum(items * float(getattr(costs(what), figure)) for what, items in counted.items())

    def _pass_costs(self, options: Options) -> PassCosts:
        checkpointing = options.checkpointing and self.backbone.shape.qformer
        key = (options.precision, options.device, checkpointing)
        if key not in self._costs:
            more = {"gradient_checkpointing": True} if checkpointing else {}
            self._costs[key] = PassCosts(
                planned_backbone({**self.settings, **more}) if more else self.backbone,
                text_length=self.length,
                precision=options.precision,
                device=options.device,
            )
        return self._costs[key]

    def _advice(self, limit: float) -> tuple[tuple[str, float], ...]:
        """Change one thing after another until it fits, what costs least first."""
        options, found = self.options, []

        def change(what: str, **values: Any) -> bool:
            nonlocal options
            changed = replace(options, **values)
            left = self.memory(changed).total
            if left < self.memory(options).total:
                options = changed
                found.append((what, left))
            return left <= limit

        if not options.cached and change(
            "take image tokens from the cache (`triptych cache build`)", cached=True
        ):
            return tuple(found)
        if (
            options.precision == "no"
            and options.device == "cuda"
            and change("train in bf16 (--set training.precision=bf16)", precision="bf16")
        ):
            return tuple(found)
        if not options.checkpointing and change(
            "gradient checkpointing (--set backbone.gradient_checkpointing=true)", checkpointing=True
        ):
            return tuple(found)
        for size in MICRO_BATCHES:
            if size < options.at_once:
                before = options
                fits = change(
                    f"micro-batches of {size} with cached contrastive gradients (--set training.micro_batch={size})",
                    micro_batch=size,
                )
                if fits:
                    return tuple(found)
                if options is not before and size != MICRO_BATCHES[-1]:
                    found.pop()  # a smaller one takes its place
        return tuple(found)


def _text_length(backbone: Backbone) -> int:
    """Return how many positions a text takes: those of the settings, CLIP's own, or a usual number."""
    said = getattr(getattr(backbone, "config", None), "text_length", None)
    own = getattr(backbone, "text_length", _USUAL_LENGTH)
    padded = getattr(backbone, "is_siglip", False)  # the others are padded to the longest of a batch
    return int(said or (own if padded else min(own, _USUAL_LENGTH)))


def measured_flops(device: str | None = None, *, precision: str = "no", seconds: float = 0.5) -> float:
    """Measure how many operations a second this machine's matrix products make.

    Args:
        device: ``cuda`` or ``cpu``; a GPU where there is one by default.
        precision: ``no`` (float32), ``bf16`` or ``fp16``.
        seconds: how long to measure.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    size = 8192 if device == "cuda" else 1024
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    left, right = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))

    def wait() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    left @ right
    start, runs = wait(), 0
    while (now := wait()) - start < seconds or not runs:
        left @ right
        runs += 1
        now = wait()
    return 2 * size**3 * runs / (now - start)


def epoch_seconds(plan: Plan, triplets: int, flops: float) -> float:
    """Return how long an epoch takes at least, at a machine's speed of matrix products."""
    return math.floor(triplets / plan.options.batch_size) * plan.step_flops / flops
