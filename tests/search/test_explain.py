"""Where the model looked, of queries by id and by file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triptych.errors import UsageError
from triptych.search import GalleryEngine, Query
from triptych.search.explain import explain

CIRCLE = "plain-large-red-circle"


def test_by_id_and_by_file_are_the_same(engine: GalleryEngine, tiny_benchmark: Path) -> None:
    by_id = explain(engine, Query.of(image=CIRCLE, text="Make it bluer!"))
    by_file = explain(
        engine, Query.of(image=tiny_benchmark / "images" / f"{CIRCLE}.png", text="make it bluer")
    )
    assert [word for word, _ in by_id.words] == ["make", "it", "bluer"]
    assert sum(share for _, share in by_id.words) == pytest.approx(1)
    assert by_id.regions.shape == (5, 5)
    assert by_id.regions.sum() == pytest.approx(1)
    assert by_id.part == (0, 0, 1, 1)
    np.testing.assert_allclose(by_id.regions, by_file.regions, atol=1e-4)
    assert dict(by_id.words) == pytest.approx(dict(by_file.words), abs=1e-4)


def test_it_is_of_the_last_turn(engine: GalleryEngine) -> None:
    last = Query.of(image=CIRCLE, text="in blue")
    chain = Query.of(text="a red square").then(image=CIRCLE, text="in blue")
    np.testing.assert_array_equal(explain(engine, chain).regions, explain(engine, last).regions)


@pytest.mark.parametrize(
    "query",
    [
        Query.of(text="red"),
        Query.of(image=CIRCLE),
        Query.of(image=CIRCLE, text="!"),
        Query(images=({"id": CIRCLE}, {"id": CIRCLE}), texts=({"text": "red"},)),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_shown(query: Any, engine: GalleryEngine) -> None:
    with pytest.raises(UsageError, match="one reference picture with one text"):
        explain(engine, query)


def test_an_unknown_picture(engine: GalleryEngine) -> None:
    with pytest.raises(UsageError, match='no image "gone"'):
        explain(engine, Query.of(image="gone", text="red"))
