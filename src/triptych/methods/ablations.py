"""Named ablation rows, ``METHOD.ROW``: rows of the papers' tables as switches."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from triptych.errors import UsageError
from triptych.methods import registry
from triptych.methods.config import Ablation


def ablations() -> Iterator[tuple[str, Ablation]]:
    """Yield every row with its name, as ``intent.A1``."""
    for method in registry.names():
        for row, ablation in registry.get(method).ablations.items():
            yield f"{method}.{row}", ablation


def apply_ablations(names: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Add the switches of ablation rows to a method's settings.

    Args:
        names: rows as ``METHOD.ROW``, of one method.
        settings: the method's settings; ``name`` may be missing.

    Returns:
        The settings, with the method's name.

    Raises:
        UsageError: a row is unknown or of another method, or two rows (or a row and a setting) contradict.
    """
    result = dict(settings)
    said_by: dict[str, str] = {key: f"{key} = {value!r}" for key, value in settings.items()}
    known = dict(ablations())
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f'; did you mean "{close[0]}"?' if close else ""
            raise UsageError(
                f'there is no ablation row "{name}"{hint}\n  `triptych methods ablations` lists them.'
            )
        for switch, value in {"name": name.partition(".")[0], **known[name].settings}.items():
            if switch in result and result[switch] != value:
                raise UsageError(
                    f"--ablate {name} sets {switch} = {value!r}, which contradicts {said_by[switch]}"
                )
            result[switch] = value
            said_by.setdefault(switch, f"--ablate {name} ({switch} = {value!r})")
    return result
