"""MethodConfig: the switches of a method, and the sets of switches that have a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Compat = Literal["recommended", "released", "paper"]


class MethodConfig(BaseModel):
    """Every switch of a method, with its default; an unknown key is an error that names it.

    A subclass that has other sources than itself says in ``presets`` what ``compat`` fixes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """``released`` and ``paper``: the switches that make the behaviour of the repository or of the print."""

    compat: Compat = Field(
        "recommended",
        description="recommended, or all switches at once as the released code or the paper has them",
    )
    robust_from_epoch: int = Field(
        0,
        ge=0,
        description="first epoch (counted from 0) with the noise-robust term; before it the plain InfoNCE loss "
        "stands in its place, where no other term ranks the targets",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        """Put the switches that ``compat`` fixes in place; one that says something else is an error."""
        if not isinstance(values, Mapping):
            return values
        name = values.get("compat", "recommended")
        fixed = cls.presets.get(name, {}) if isinstance(name, str) else {}
        for switch, value in fixed.items():
            if switch in values and values[switch] != value:
                raise ValueError(
                    f'compat = "{name}" fixes {switch} = {value!r}, and {switch} = {values[switch]!r} was given: '
                    "leave out one of the two"
                )
        return {**values, **fixed}


@dataclass(frozen=True)
class Ablation:
    """A row of an ablation table, as switches.

    Attributes:
        title: the row's name in the table, such as ``w/o VIC``.
        table: where it stands, such as ``INTENT table 3``.
        settings: the switches that differ from the full method's.
        same_as_full: the row changes nothing, by what the specification says; why.
    """

    title: str
    table: str
    settings: Mapping[str, Any]
    same_as_full: str = ""


@dataclass(frozen=True)
class Difference:
    """One point in which paper, released code and this library are not the same."""

    point: str
    paper: str
    released: str
    ours: str


@dataclass(frozen=True)
class About:
    """What ``triptych methods show`` says of a method.

    Attributes:
        idea: a paragraph.
        sources: where the formulas stand.
        differences: how paper, released code and this library differ.
        finite_paper: where the print is degenerate, the form that ``compat = "paper"`` takes, and why.
    """

    idea: str
    sources: str
    differences: tuple[Difference, ...] = ()
    finite_paper: tuple[str, ...] = ()
