"""How figures are written: numbers as they are, the same bytes twice, and no matplotlib said plainly."""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from triptych.errors import UsageError
from triptych.studies.figures.canvas import new_figure, plain, read_numbers, style, wrapped, write_figure


@dataclass(frozen=True)
class Numbers:
    name: str
    values: np.ndarray


def drawing():
    with style():
        figure = new_figure(3, 2)
        axes = figure.add_subplot()
        axes.plot([1, 2], [3, 5], label="a $ sign")
        axes.imshow(np.eye(3), extent=(1, 2, 3, 4))
        axes.legend()
        return figure


def test_numbers_become_json_and_come_back(tmp_path: Path) -> None:
    numbers = Numbers("x", np.array([1.0, 1 / 3, np.nan]))
    assert plain(numbers) == {"name": "x", "values": [1.0, 0.333333, None]}
    assert plain({1: (np.int64(2), True, None)}) == {"1": [2, True, None]}
    paths = write_figure(drawing(), tmp_path / "deep" / "v1.5", "toy", numbers, ["a note"])
    assert [path.name for path in paths] == ["v1.5.png", "v1.5.svg", "v1.5.json"]
    assert read_numbers(paths[2]) == plain(numbers)
    with Image.open(paths[0]) as picture:
        assert picture.size == (480, 320)


def test_the_same_figure_has_the_same_bytes(tmp_path: Path) -> None:
    first, second = (write_figure(drawing(), tmp_path / name, "toy", {}) for name in ("a", "b"))
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    svg = first[1].read_text()
    assert "<dc:date>" not in svg
    assert "a $ sign" in svg


def test_the_style_leaves_no_trace() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    before = dict(matplotlib.rcParams)
    drawing()
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"pip install 'triptych\[figures\]'"), style():
        pass


def test_long_texts_are_broken_and_cut() -> None:
    assert wrapped("one two three four", 9) == "one two\nthree\nfour"
    assert wrapped("one two three four", 9, lines=2) == "one two\nthree…"
    assert wrapped("", 9, lines=1) == ""
    assert max(map(len, wrapped("w" * 50, 9, lines=3).split("\n"))) <= 9
