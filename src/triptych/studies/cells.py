"""A study as a list of cells: each one training of one method on one data set, in a folder of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from triptych.errors import UsageError
from triptych.files import write_json
from triptych.noise import KINDS
from triptych.noise.corruption import Kind

CELL = "cell.json"
"""The file that a finished cell has, in its folder."""
MARKERS = ("grid.json", "study.json")
"""The files that say what a folder's cells share."""


@dataclass(frozen=True, order=True)
class NoiseLevel:
    """What is wrong with the training triplets of a cell.

    Attributes:
        kind: as ``triptych noise inject --kind``.
        ratio: share of the triplets that are wrong; 0 = none.
        oracle: the wrong ones are left out, as by a perfect filter.
    """

    kind: Kind
    ratio: float
    oracle: bool = False

    @property
    def name(self) -> str:
        """The level's name in tables and folders."""
        return f"{'oracle ' if self.oracle else ''}{self.kind} {self.ratio:g}"


def parse_noise(text: str) -> list[NoiseLevel]:
    """Read ``KIND:RATE,RATE``; an ``oracle:`` before it leaves the wrong triplets out.

    Raises:
        UsageError: it is written otherwise.

    Example:
        >>> [level.name for level in parse_noise("mix:0,0.5")]
        ['mix 0', 'mix 0.5']
    """
    rest = text.removeprefix("oracle:")
    name, _, rates = rest.partition(":")
    try:
        numbers = [float(rate) for rate in rates.split(",")]
    except ValueError:
        numbers = []
    kind = next((known for known in KINDS if known == name), None)
    if kind is None or not numbers or any(not 0 <= number <= 1 for number in numbers):
        raise UsageError(
            f"--noise {text}: write KIND:RATE,RATE such as mix:0,0.5, or oracle:mix:0.5; kinds: {', '.join(KINDS)}"
        )
    return [NoiseLevel(kind, number, oracle=rest != text) for number in numbers]


@dataclass(frozen=True)
class Cell:
    """One training of a study.

    Attributes:
        method: its name.
        noise: what is wrong with the triplets.
        seed: of the training.
        row: an ablation row as ``intent.A1``; empty for the full method.
        settings: what else sets it apart, ``SECTION.KEY`` and the value as JSON, sorted.
        data: which of the study's data sets; empty where it has one only.
        backbone: its name; empty for that of the start model, else lite.
    """

    method: str
    noise: NoiseLevel
    seed: int
    row: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    data: str = ""
    backbone: str = ""

    @property
    def name(self) -> str:
        """The name of the cell's folder."""
        parts = [self.data, self.backbone, self.row or self.method, *self._settings()]
        words = "-".join(part for part in parts if part)
        return f"{words}-{self.noise.name.replace(' ', '-')}-seed{self.seed}"

    @property
    def variant(self) -> str:
        """What sets it apart from the full method with its defaults, in words; empty where nothing does."""
        said = ", ".join(self._settings())
        return ", ".join(part for part in (self.row.partition(".")[2], said) if part)

    def _settings(self) -> list[str]:
        return [f"{key.rpartition('.')[2]}={_plain(value)}" for key, value in self.settings]

    @classmethod
    def read(cls, noted: Mapping[str, Any]) -> Cell:
        """Make a cell from what ``cell.json`` says; older versions say less."""
        settings = tuple((str(key), str(value)) for key, value in noted.get("settings", ()))
        others = {name: noted[name] for name in ("row", "data", "backbone") if name in noted}
        return cls(noted["method"], NoiseLevel(**noted["noise"]), noted["seed"], settings=settings, **others)


def settings_of(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Write ``SECTION.KEY`` to value as a cell holds them.

    Example:
        >>> settings_of({"method.mu": 0.2, "method.alpha": 0.6})
        (('method.alpha', '0.6'), ('method.mu', '0.2'))
    """
    return tuple(sorted((key, json.dumps(value)) for key, value in values.items()))


@dataclass(frozen=True)
class Study:
    """What is to be run.

    Attributes:
        data: name to data set; a single one may have an empty name.
        folder: where cells, manifests and tables go.
        cells: the trainings.
        init: a model folder to start from.
        training: settings of all cells.
        switches: method to its switches, for all its cells.
        backbone: settings of the backbone, for all cells.
        marker: the file that says what the cells share.
        scored: which models of a cell are evaluated; the tables are of the best.
    """

    data: Mapping[str, Path]
    folder: Path
    cells: tuple[Cell, ...]
    init: Path | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    backbone: Mapping[str, Any] = field(default_factory=dict)
    marker: str = "study.json"
    scored: tuple[str, ...] = ("best",)

    def claim(self) -> None:
        """Make the folder this study's.

        Raises:
            UsageError: it holds cells of other settings.
        """
        data: Any = {name: str(path.resolve()) for name, path in sorted(self.data.items())}
        shared = {
            "data": data.get("", data),
            "init": str(self.init.resolve()) if self.init else None,
            "training": dict(self.training),
            "switches": {name: dict(values) for name, values in self.switches.items()},
        }
        if self.backbone:
            shared["backbone"] = dict(self.backbone)
        settings = json.loads(json.dumps(shared))
        path = self.folder / self.marker
        if not path.is_file():
            if others := [name for name in MARKERS if (self.folder / name).is_file()]:
                raise UsageError(
                    f"{self.folder} holds another kind of study ({others[0]}).\n  Choose another folder."
                )
            write_json(path, settings)
            return
        found = json.loads(path.read_text(encoding="utf-8"))
        keys = [key for key in {**found, **settings} if key != "data"]
        different = [key for key in keys if found.get(key) != settings.get(key)]
        if not self._agree(found.get("data"), settings["data"]):
            different.insert(0, "data")
        if different:
            raise UsageError(
                f"{self.folder} holds a study with another {' and '.join(different)}.\n"
                "  Give the same settings to go on with it, or choose another folder."
            )
        if isinstance(found.get("data"), dict) and set(data) - set(found["data"]):
            write_json(path, {**settings, "data": {**found["data"], **data}})

    @staticmethod
    def _agree(found: Any, wanted: Any) -> bool:
        """Say whether data of the same name is the same; a study may be given more data later."""
        if isinstance(found, dict) and isinstance(wanted, dict):
            return all(found[name] == path for name, path in wanted.items() if name in found)
        return bool(found == wanted)

    def is_done(self, cell: Cell) -> bool:
        """Say whether a cell is trained and scored."""
        return (self.folder / cell.name / CELL).is_file()

    def note(self, cell: Cell, **facts: Any) -> None:
        """Write that a cell is finished, and what is known of it."""
        write_json(self.folder / cell.name / CELL, {**asdict(cell), **facts})


def _plain(value: str) -> str:
    """Make a JSON value fit for a folder's name."""
    return re.sub(r"[^\w.+-]+", "_", value.strip('"')).strip("_") or "empty"
