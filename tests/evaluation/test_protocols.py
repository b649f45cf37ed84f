from __future__ import annotations

import pytest
from pydantic import ValidationError

from triptych.errors import UsageError
from triptych.evaluation.protocols import FASHIONIQ, REFERENCE_REMOVED, Protocol, find_protocol


def test_fashioniq_keeps_the_reference_and_both_conventions_are_named() -> None:
    assert FASHIONIQ.headline == "kept"
    assert FASHIONIQ.conventions == ("kept", "removed")
    assert REFERENCE_REMOVED.conventions == ("removed", "kept")
    assert FASHIONIQ.ks == (1, 5, 10, 50)
    assert FASHIONIQ.map_ks == (5, 10, 25, 50)


def test_by_name() -> None:
    assert find_protocol("fashioniq") is FASHIONIQ
    with pytest.raises(UsageError, match='unknown protocol "x"; choose one of: fashioniq, reference-removed'):
        find_protocol("x")


@pytest.mark.parametrize("options", [{"ks": (0, 1)}, {"ks": (5, 1)}, {"map_ks": (5, 5)}, {"kay": (1,)}])
def test_a_protocol_that_cannot_be(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Protocol(name="x", headline="kept", **options)
