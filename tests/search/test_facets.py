"""What the columns of a gallery hold."""

from typing import Any

import pyarrow as pa

from triptych.search import GalleryEngine
from triptych.search.columns import ID
from triptych.search.facets import MAX_LENGTH, MAX_VALUES, facets


def test_every_kind_of_column(engine: GalleryEngine) -> None:
    colour, price, large = facets(engine.snapshot)
    assert (colour.name, colour.kind, colour.distinct) == ("colour", "text", 3)
    assert list(colour.values) == [("blue", 16), ("green", 16), ("red", 16)]
    assert (price.kind, price.low, price.high, price.missing) == ("number", 10.5, 30.5, 4)
    assert (list(price.values), price.distinct) == ([], 0)
    assert (large.kind, list(large.values)) == ("truth value", [(False, 24), (True, 24)])
    assert colour.looked_at == 48


def test_many_values_long_values_none_and_nan(own_gallery: Any, engine_of: Any) -> None:
    engine = engine_of(own_gallery)
    gallery = engine.gallery
    ids = sorted(gallery.hashes())
    names = [f"n{number:02d}" for number in range(46)] + ["x" * (MAX_LENGTH + 1)] * 2
    with gallery.writing():
        gallery.add_metadata_columns({"name": pa.string(), "none": pa.string(), "figure": pa.float64()})
        figures = [float("nan"), float("inf"), 2.0, *[None] * 45]
        gallery.put(pa.table({ID: ids, "name": names, "figure": pa.array(figures, pa.float64())}))
    engine.refresh()
    found = {facet.name: facet for facet in facets(engine.snapshot)}
    assert (found["name"].distinct, len(found["name"].values)) == (47, MAX_VALUES)
    assert all(len(str(value)) <= MAX_LENGTH for value, _ in found["name"].values)
    assert (found["none"].missing, list(found["none"].values)) == (48, [])
    assert (found["figure"].low, found["figure"].high, found["figure"].missing) == (2.0, 2.0, 45)
    assert facets(engine.snapshot, rows=10)[0].looked_at == 10
