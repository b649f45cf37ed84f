"""The trunk: known pictures get their ImageNet class, and padding is TensorFlow's."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from triptych.backbones.efficientnet_lite import EfficientNetLite0, _Conv, load_efficientnet_lite0
from triptych.backbones.preprocessing import resize_and_crop, to_pixels


@pytest.fixture(scope="module")
def trunk(lite_weights: None) -> EfficientNetLite0:
    from triptych.backbones.lite import weight_paths

    return load_efficientnet_lite0(weight_paths()[0])


@pytest.mark.parametrize(
    ("name", "label", "probability"), [("china.jpg", 698, 0.31), ("flower.jpg", 985, 0.21)]
)
@torch.no_grad()
def test_known_photos_get_their_class(
    trunk: EfficientNetLite0, name: str, label: int, probability: float
) -> None:
    """A palace and a daisy; the original network gives these values, and others with ImageNet's mean and deviation."""
    from sklearn.datasets import load_sample_image

    photo = resize_and_crop(Image.fromarray(load_sample_image(name)), 224)
    pixels = torch.from_numpy(to_pixels(photo))[None] * 255
    found = trunk((pixels - 127) / 128).softmax(dim=1)[0]
    assert int(found.argmax()) == label
    assert float(found[label]) == pytest.approx(probability, abs=0.02)

    mean, deviation = (torch.tensor(v)[:, None, None] for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    other = trunk((pixels / 255 - mean) / deviation).softmax(dim=1)[0]
    assert abs(float(other[label]) - probability) > 0.03


def ones(kernel: int, stride: int) -> _Conv:
    """A convolution that sums its window."""
    conv = _Conv(1, 1, kernel, stride)
    torch.nn.init.ones_(conv.weight)
    assert conv.bias is not None
    torch.nn.init.zeros_(conv.bias)
    return conv.requires_grad_(False)


def test_padding_by_hand() -> None:
    """4 pixels, kernel 3, stride 2: one pixel of padding, on the right and at the bottom."""
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    expected = [
        [0 + 1 + 2 + 4 + 5 + 6 + 8 + 9 + 10, 2 + 3 + 6 + 7 + 10 + 11],
        [8 + 9 + 10 + 12 + 13 + 14, 60 - 10],
    ]
    assert ones(3, 2)(x)[0, 0].tolist() == [list(map(float, row)) for row in expected]


@given(
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    kernel=st.sampled_from([1, 3, 5]),
    stride=st.sampled_from([1, 2]),
)
def test_padding_of_any_size(height: int, width: int, kernel: int, stride: int) -> None:
    """Out = ceil(size / stride), and each value is the sum over the window that TensorFlow's rule puts there."""
    x = torch.arange(float(height * width)).reshape(1, 1, height, width) + 1
    found = ones(kernel, stride)(x)[0, 0]
    assert found.shape == (math.ceil(height / stride), math.ceil(width / stride))
    for row in range(found.shape[0]):
        for column in range(found.shape[1]):
            rows, columns = (
                window(place, size, kernel, stride) for place, size in ((row, height), (column, width))
            )
            assert float(found[row, column]) == float(x[0, 0, rows, columns].sum())


def window(place: int, size: int, kernel: int, stride: int) -> slice:
    padding = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    start = place * stride - padding // 2
    return slice(max(start, 0), max(start + kernel, 0))


@torch.no_grad()
def test_odd_sizes(trunk: EfficientNetLite0) -> None:
    """Each of five halvings rounds up: 33 -> 17 -> 9 -> 5 -> 3 -> 2, and 47 -> 24 -> 12 -> 6 -> 3 -> 2."""
    middle, head = trunk.features(torch.zeros(2, 3, 33, 47))
    assert (middle.shape, head.shape) == ((2, 112, 3, 3), (2, 1280, 2, 2))
    assert trunk.features(torch.zeros(1, 3, 1, 1))[1].shape == (1, 1280, 1, 1)


@torch.no_grad()
def test_the_stride_16_map_is_not_changed_by_the_layers_after_it(trunk: EfficientNetLite0) -> None:
    """Activations work in place: the map that is kept must not be one that they write to."""
    pixels = torch.linspace(-1, 1, 3 * 64 * 64).reshape(1, 3, 64, 64)
    x: Tensor = trunk.stem(pixels).clamp(0, 6)
    for block in trunk.blocks[:11]:
        x = block(x)
    torch.testing.assert_close(trunk.features(pixels)[0], x)


def test_it_is_frozen(trunk: EfficientNetLite0) -> None:
    assert not trunk.training
    assert not any(value.requires_grad for value in trunk.parameters())
