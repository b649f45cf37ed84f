"""Which parameters are trained, grouped by the factor of their learning rate."""

from __future__ import annotations

from typing import Any

from torch import nn

from triptych.methods.base import Method


def parameter_groups(
    module: nn.Module, method: Method
) -> tuple[dict[str, nn.Parameter], list[dict[str, Any]]]:
    """Group the trained parameters of a module by :meth:`~triptych.methods.base.Method.rate`.

    Returns:
        The parameters by name in the order of the groups, and the groups for an optimiser, with ``factor``.
    """
    by_factor: dict[float, dict[str, nn.Parameter]] = {}
    for name, value in module.named_parameters():
        if value.requires_grad:
            by_factor.setdefault(method.rate(name), {})[name] = value
    groups = [{"params": list(named.values()), "factor": factor} for factor, named in by_factor.items()]
    return {name: value for named in by_factor.values() for name, value in named.items()}, groups
