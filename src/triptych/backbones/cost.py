"""What a backbone costs, from its sizes alone: parameters, multiply-accumulates, and the memory of its passes.

Everything runs on torch's meta device, which knows shapes and holds no values. Two ways of counting stand side by side
(specification, section 2.7):

* *hooked*: as profilers that hook modules count, which is what papers print. The multiply-accumulates of Linear and
  convolution modules that are called, and 4 an element of LayerNorm; EVA's fused ``qkv``, the products of attention and
  the tables of embeddings count nothing.
* *true*: every matrix product, and every parameter.
"""

from __future__ import annotations

import contextlib
import copy
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from triptych.backbones.base import Backbone
from triptych.backbones.registry import config_class, create_backbone

LAYER_NORM_MACS = 4
"""An element, as the profiler ``thop`` counts an affine LayerNorm."""
_BATCH = 2
_FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
"""Stands for the fused attention of any device: it keeps what they keep."""
_LOW = {"linear", "matmul", "bmm", "addmm", "conv2d", "__matmul__", "einsum", "scaled_dot_product_attention"}
_HIGH = {"layer_norm", "softmax", "log_softmax", "normalize", "cross_entropy", "logsumexp"}


@dataclass(frozen=True)
class Pass:
    """A call of a backbone's pass.

    Attributes:
        name: as :class:`~triptych.backbones.base.Backbone` has it.
        gradient: whether what it keeps for the backward pass is kept.
        tokens: how many tokens a prompt has, where it is one.
        attention: whether attentions were asked for.
    """

    name: str
    gradient: bool = True
    tokens: int = 0
    attention: bool = False


@dataclass(frozen=True)
class Cost:
    """What a pass costs an item.

    Attributes:
        hooked_macs: multiply-accumulates as papers print them.
        macs: multiply-accumulates of all matrix products.
        saved_bytes: kept for the backward pass.
        peak_bytes: the most that was held at once.
        modules: names of the modules that papers' profilers would have seen.
    """

    hooked_macs: float = 0.0
    macs: float = 0.0
    saved_bytes: float = 0.0
    peak_bytes: float = 0.0
    modules: frozenset[str] = field(default_factory=frozenset)


def planned_backbone(settings: Mapping[str, Any]) -> Backbone:
    """Build a backbone on the meta device: its sizes, without weights where it can be built without.

    Args:
        settings: ``{"name": ..., sizes}``; other weights than the usual ones give their sizes.

    Raises:
        UsageError: the name or a setting is unknown, or the weights are not there.
    """
    values = dict(settings)
    name = str(values.get("name", "lite"))
    fields = config_class(name).model_fields
    if "weights" not in fields:  # they come with its package
        return _on_meta(values)
    from triptych.backbones.blip2 import read_sizes
    from triptych.backbones.hub import find_weights

    usual = (None, fields["weights"].default)  # whose sizes are the defaults: nothing is looked for
    if (weights := values.get("weights")) not in usual:
        folder = find_weights(str(weights))
        if "sizes" not in fields:
            return _on_meta(values)
        values["sizes"] = read_sizes(folder).model_dump()
    with torch.device("meta"):
        return create_backbone({**values, "weights": None}).to("meta")


def _on_meta(settings: Mapping[str, Any]) -> Backbone:
    return copy.deepcopy(create_backbone(settings)).to("meta")  # a tower may be in use elsewhere


def parameter_count(module: nn.Module, *, trained: bool = False) -> int:
    """Count all parameters, or those that are trained."""
    return sum(value.numel() for value in module.parameters() if value.requires_grad or not trained)


def parameter_bytes(module: nn.Module) -> int:
    """Return what parameters and buffers take in memory."""
    return sum(value.nbytes for value in (*module.parameters(), *module.buffers()))


def hooked_parameter_count(module: nn.Module, names: frozenset[str] | None = None) -> int:
    """Count the parameters of the modules that a profiler of modules sees.

    Args:
        module: a backbone or method.
        names: of the modules that were called; all by default.
    """
    return sum(
        sum(value.numel() for value in part.parameters(recurse=False))
        for name, part in _hookable(module)
        if names is None or name in names
    )


class PassCosts:
    """Costs of a backbone's passes, each measured once.

    Args:
        backbone: on the meta device.
        text_length: tokens a text.
        precision: ``no``, ``bf16`` or ``fp16`` autocast.
        device: ``cuda`` or ``cpu``, whose kernels differ in what they keep.
    """

    def __init__(
        self, backbone: Backbone, *, text_length: int = 32, precision: str = "no", device: str = "cuda"
    ) -> None:
        self.backbone, self.text_length = backbone, text_length
        self.precision, self.device = precision, device
        self._found: dict[Pass, Cost] = {}
        backbone.train()
        if backbone.shape.qformer:  # words are looked up, which no tokenizer is needed for
            vars(backbone)["word_embeddings"] = self._words
        else:
            vars(backbone)["tokenise"] = self._pieces

    def __call__(self, what: Pass) -> Cost:
        """Return a pass's cost for one item of a batch."""
        if what not in self._found:
            self._found[what] = self._measure(what)
        return self._found[what]

    def _measure(self, what: Pass) -> Cost:
        call = self._call(what)
        with torch.set_grad_enabled(what.gradient):
            frozen = what.name == "encode_images"  # the tower runs in its own precision
            cost = measure(
                self.backbone,
                call,
                precision="no" if frozen else self.precision,
                device=self.device,
                peak=frozen,
            )
        return Cost(
            cost.hooked_macs / _BATCH,
            cost.macs / _BATCH,
            cost.saved_bytes / _BATCH,
            cost.peak_bytes / _BATCH,
            cost.modules,
        )

    def _words(self, texts: Any) -> tuple[Tensor, Tensor]:
        size = (len(texts), self.text_length)
        words = torch.empty(*size, self.backbone.shape.hidden, device="meta", requires_grad=True)
        return words, torch.ones(size, dtype=torch.int64, device="meta")

    def _pieces(self, texts: Any) -> tuple[Tensor, Tensor]:
        ids = torch.ones(len(texts), self.text_length, dtype=torch.int64, device="meta")
        return ids, torch.ones_like(ids)

    def _call(self, what: Pass) -> Callable[[], Any]:
        shape, backbone, texts = self.backbone.shape, self.backbone, ["a text"] * _BATCH

        def made(*size: int, trained: bool = True) -> Tensor:
            return torch.empty(*size, device="meta", requires_grad=trained)

        tokens = made(_BATCH, shape.image_tokens, shape.image_width, trained=False)
        seen = made(_BATCH, shape.image_tokens, shape.image_width)
        looked = made(_BATCH, shape.queries, shape.hidden)
        side = shape.image_size
        calls: dict[str, Callable[[], Any]] = {
            "encode_images": lambda: backbone.encode_images(made(_BATCH, 3, side, side, trained=False)),
            "vision": lambda: backbone.vision(tokens),
            "look": lambda: backbone.look(seen),
            "look_attentively": lambda: backbone.look_attentively(seen),
            "image_pass": lambda: backbone.image_pass(tokens),
            "as_targets": lambda: backbone.as_targets(looked),
            "targets": lambda: backbone.targets(tokens),
            "compose": lambda: backbone.compose(tokens, texts, attention=what.attention),
            "refine": lambda: backbone.refine(looked, texts),
            "prompt": lambda: backbone.prompt(made(what.tokens, shape.hidden), texts),
            "pool_images": lambda: backbone.pool_images(seen),
            "pool_texts": lambda: backbone.pool_texts(texts),
            "word_embeddings": lambda: backbone.word_embeddings(texts),
            "text_pass": lambda: backbone.text_pass(texts),
            "text": lambda: backbone.text(texts),
            "text_and_states": lambda: backbone.text_and_states(texts),
        }
        return calls[what.name]


def measure(
    module: nn.Module,
    call: Callable[[], Any],
    *,
    precision: str = "no",
    device: str = "cuda",
    peak: bool = True,
    kernels: bool = True,
    ignored: set[int] | None = None,
) -> Cost:
    """Run something and say what it cost.

    Args:
        module: whose parameters are no activations.
        call: runs it; on the meta device nothing is computed.
        precision: ``no``, ``bf16`` or ``fp16``: casts as autocast does.
        device: ``cuda`` keeps less for dropout and attention than ``cpu`` does.
        peak: whether to follow how much is held at once.
        kernels: whether to take the device's kernels; not where real tensors are computed with.
        ignored: storages (``_cdata``) that others account for; may grow while it runs.
    """
    own = {value.untyped_storage()._cdata for value in (*module.parameters(), *module.buffers())}
    saved: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        others = (own, chosen.weights, ignored or ())
        if not any(storage._cdata in known for known in others):
            saved[storage._cdata] = storage  # held, so that no other takes its number
        return tensor

    chosen = _Kernels(precision, device, own)
    counter = _Counter(peak)
    with (
        _meta_without_autocast(),
        _hooked(module) as hooked,
        saved_tensors_hooks(keep, lambda tensor: tensor),
        counter,
        chosen if kernels else contextlib.nullcontext(),
    ):
        call()
    return Cost(
        hooked_macs=sum(hooked.values()),
        macs=counter.flops / 2,
        saved_bytes=sum(storage.nbytes() for storage in saved.values()),
        peak_bytes=counter.peak,
        modules=frozenset(hooked),
    )


def _hookable(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear | nn.Conv2d | nn.LayerNorm) and name.rpartition(".")[2] != "qkv":
            yield name, part


@contextlib.contextmanager
def _meta_without_autocast() -> Iterator[None]:
    """Let ``torch.autocast`` pass over the meta device, which it does not know even to switch itself off."""
    real = torch.autocast

    def autocast(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return contextlib.nullcontext() if device_type == "meta" else real(device_type, *args, **kwargs)

    with patch.object(torch, "autocast", autocast):
        yield


@contextlib.contextmanager
def _hooked(module: nn.Module) -> Iterator[dict[str, float]]:
    """Count the modules that are called, by name."""
    found: dict[str, float] = {}

    def count(name: str, part: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        if isinstance(part, nn.Linear):
            macs = output.numel() * part.in_features
        elif isinstance(part, nn.Conv2d):
            macs = output.numel() * part.weight[0].numel()
        else:
            macs = LAYER_NORM_MACS * output.numel()
        found[name] = found.get(name, 0.0) + macs

    handles = [
        part.register_forward_hook(lambda p, i, o, name=name: count(name, p, i, o))
        for name, part in _hookable(module)
    ]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Counts floating-point operations, and on request follows how many bytes of results are held at once."""

    def __init__(self, follow: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = self.now = self.peak = 0
        self._follow = follow
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func._overloadpacket is _FUSED:
            self.flops += sdpa_flop_count(*(value.shape for value in args[:3]))  # type: ignore[no-untyped-call]
        elif count := flop_registry.get(func._overloadpacket):
            self.flops += int(count(*args, **kwargs, out_val=result))
        if self._follow:
            self._look(result, (args, kwargs))
        return result

    def _look(self, result: Any, given: Any) -> None:
        old = {value.untyped_storage()._cdata for value in tree_leaves(given) if isinstance(value, Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._known and storage._cdata not in old:
                    self._known.add(storage._cdata)
                    self.now += storage.nbytes()
                    weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())
        self.peak = max(self.peak, self.now)

    def _gone(self, number: int, size: int) -> None:
        self._known.discard(number)
        self.now -= size


class _Kernels(TorchFunctionMode):
    """Casts as autocast does, and takes the kernels that the device would, for what they keep."""

    def __init__(self, precision: str, device: str, own: set[int]) -> None:
        super().__init__()
        self._low = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
        self._fused = device != "cpu"
        self._own = own
        self.weights: set[int] = set()
        """Casts of weights: autocast keeps one each, which is counted elsewhere."""
        self._held: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.__bool__ and args[0].is_meta:
            return False  # "is nothing padded?", which shapes do not say
        name = getattr(func, "__name__", "")
        if self._low is not None and name in _LOW:
            args, kwargs = _cast(args, self._lower), _cast(kwargs, self._lower)
        elif self._low is not None and name in _HIGH:
            args, kwargs = _cast(args, Tensor.float), _cast(kwargs, Tensor.float)
        if self._fused and func is functional.dropout:
            return self._dropout(*args, **kwargs)
        if self._fused and func is functional.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        return func(*args, **kwargs)

    def _lower(self, value: Tensor) -> Tensor:
        assert self._low is not None
        lower = value.to(self._low)
        if value.untyped_storage()._cdata in self._own:
            self.weights.add(lower.untyped_storage()._cdata)
            self._held.append(lower)
        return lower

    @staticmethod
    def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return input
        return torch.native_dropout(input, p, True)[0]

    @staticmethod
    def _attention(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, *_: Any, **__: Any
    ) -> Any:
        """Keep what a fused kernel keeps: the inputs, the output, and a figure a row."""
        output, _ = _FUSED(query, key, value)
        return output


def _cast(values: Any, how: Callable[[Tensor], Tensor]) -> Any:
    def one(value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            return how(value)
        return value

    if isinstance(values, dict):
        return {key: one(value) for key, value in values.items()}
    return tuple(one(value) for value in values)
