"""Sweeps: one setting, or the product of several, over values; the papers' own as presets."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triptych.errors import UsageError
from triptych.studies.cells import Cell, settings_of
from triptych.studies.layout import Layout
from triptych.studies.reproduce import Choice


@dataclass(frozen=True)
class Sweep:
    """Settings and their values.

    Attributes:
        name: of the preset, or made of the settings.
        method: whose settings they are.
        values: ``SECTION.KEY`` to values; of several, the product is run.
        source: the paper's figure.
        grid: what the paper says of the values.
    """

    name: str
    method: str
    values: Mapping[str, tuple[Any, ...]]
    source: str = ""
    grid: str = ""


_TENTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
_NOT_PRINTED = "the paper's text prints the best value, not the grid: even steps are taken"

SWEEPS = {
    sweep.name: sweep
    for sweep in (
        Sweep("conesep.omega", "conesep", {"method.omega": _TENTHS}, "ConeSep figure 3a", _NOT_PRINTED),
        Sweep("conesep.kappa", "conesep", {"method.kappa": _TENTHS}, "ConeSep figure 3b", _NOT_PRINTED),
        Sweep("conesep.zeta", "conesep", {"method.zeta": _TENTHS}, "ConeSep figure 7a", _NOT_PRINTED),
        Sweep("conesep.nu", "conesep", {"method.nu": _TENTHS}, "ConeSep figure 7b", _NOT_PRINTED),
        Sweep("conesep.gamma", "conesep", {"method.gamma": _TENTHS}, "ConeSep figure 7c", _NOT_PRINTED),
        Sweep("conesep.K", "conesep", {"method.boundary_draws": (1, 2, 3, 4, 5, 6)}, "ConeSep figure 8"),
        Sweep(
            "habit.kappa", "habit", {"method.w_kl": (1.0, 5.0, 10.0, 15.0, 20.0)}, "HABIT figure 5a",
            "the paper prints the ends",
        ),
        Sweep(
            "habit.gamma", "habit", {"method.w_soft": (0.1, 0.3, 0.5, 0.7, 1.0)}, "HABIT figure 5b",
            "the paper prints the ends",
        ),
        Sweep(
            "intent.mu-alpha", "intent",
            {"method.mu": (0.1, 0.2, 0.4, 0.6, 0.8), "method.alpha": (0.2, 0.4, 0.6, 0.8, 1.0)},
            "INTENT, section 4.1",
            "the paper tells of a grid search and prints its end, mu 0.2 and alpha 0.6",
        ),
    )
}  # fmt: skip
"""Every sweep of the papers, by name."""


def find_sweep(name: str) -> Sweep:
    """Return a preset by name; ``UsageError`` lists the names where it is unknown."""
    if name not in SWEEPS:
        raise UsageError(
            f'there is no sweep "{name}"; there are: {", ".join(SWEEPS)}; any other setting by --vary'
        )
    return SWEEPS[name]


def own_sweep(method: str, vary: Mapping[str, Sequence[Any]]) -> Sweep:
    """Make a sweep of any settings of the sections method, training and backbone.

    Raises:
        UsageError: a section is another one, or a setting has no value.
    """
    for name, values in vary.items():
        section, dot, key = name.partition(".")
        if section not in ("method", "training", "backbone") or not dot or not key:
            raise UsageError(
                f"--vary {name}: write SECTION.KEY=VALUE,VALUE; sections: method, training, backbone"
            )
        if not values:
            raise UsageError(f"--vary {name}: give values, such as {name}=0.2,0.4")
        if name == "training.seed":
            raise UsageError("--vary training.seed: seeds are given by --seed, and averaged")
    keys = "-".join(name.rpartition(".")[2] for name in vary)
    return Sweep(f"{method}.{keys}", method, {name: tuple(values) for name, values in vary.items()})


def sweep_layouts(sweep: Sweep, choice: Choice) -> list[Layout]:
    """Lay a sweep out: a line for each value, or each pair of values.

    Args:
        sweep: what is varied.
        choice: data, seeds and noise; mix 0.2 where no noise is chosen, as in the papers.
    """
    points = [
        dict(zip(sweep.values, each, strict=True)) for each in itertools.product(*sweep.values.values())
    ]
    notes = [f"{sweep.source}: {sweep.grid}." if sweep.grid else f"{sweep.source}."] if sweep.source else []
    return [
        Layout(
            name=f"sweep-{sweep.name}",
            title=f"{sweep.method} over {' and '.join(_key(name) for name in sweep.values)}",
            lines=tuple(
                line
                for level in choice.levels((0.2,))
                for point in points
                for line in choice.line(
                    Cell(sweep.method, level, 0, settings=settings_of(point), data=data),
                    ", ".join(f"{_key(name)} = {value}" for name, value in point.items()),
                )
            ),
            quote=False,
            notes=tuple(notes),
        )
        for data in choice.data
    ]


def _key(name: str) -> str:
    return name.rpartition(".")[2]
