"""Which parameters are trained, grouped by the factor of their learning rate."""

from __future__ import annotations

from typing import Any

from torch import nn

from triptych.training.learner import Learner


def parameter_groups(
    learner: Learner, *, tower: float = 1.0
) -> tuple[dict[str, nn.Parameter], list[dict[str, Any]]]:
    """Group the trained parameters of a run by :meth:`~triptych.methods.base.Method.rate`.

    Args:
        learner: backbone and method.
        tower: the factor of the trained blocks of a vision tower, whatever the method says.

    Returns:
        The parameters by name in the order of the groups, and the groups for an optimiser, with ``factor``.
    """
    blocks = tuple(f"backbone.{part}." for part in learner.backbone.trained_tower)
    by_factor: dict[float, dict[str, nn.Parameter]] = {}
    for name, value in learner.named_parameters():
        if value.requires_grad:
            factor = tower if name.startswith(blocks) else learner.method.rate(name)
            by_factor.setdefault(factor, {})[name] = value
    groups = [{"params": list(named.values()), "factor": factor} for factor, named in by_factor.items()]
    return {name: value for named in by_factor.values() for name, value in named.items()}, groups
