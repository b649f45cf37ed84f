"""Pages of a gallery: together they are all images in order of id, whatever is written meanwhile."""

from typing import Any

import pyarrow as pa
import pytest

from triptych.search import GalleryEngine
from triptych.search.browse import Browser
from triptych.search.columns import ID
from triptych.search.filters import FilterError


def test_pages_together_are_everything_in_order(engine: GalleryEngine) -> None:
    browser, found, after = Browser(), [], None
    while True:
        page = browser.page(engine.snapshot, after=after, limit=11)
        assert page.total == 48
        found += page.images
        after = page.after
        if after is None:
            break
    ids = [image.image_id for image in found]
    assert ids == sorted(ids)
    assert len(set(ids)) == 48
    assert found[0].metadata == {"colour": "blue", "price": 30.5, "large": True}
    assert (found[0].width, found[0].height) == (64, 64)


def test_skip_and_after_and_an_id_that_is_not_there(engine: GalleryEngine) -> None:
    browser = Browser()
    ids = [image.image_id for image in browser.page(engine.snapshot, limit=48).images]
    skipped = browser.page(engine.snapshot, skip=40, limit=200)
    assert [image.image_id for image in skipped.images] == ids[40:]
    assert skipped.after is None
    both = browser.page(engine.snapshot, after=ids[9], skip=2, limit=3)
    assert [image.image_id for image in both.images] == ids[12:15]
    between = browser.page(engine.snapshot, after=ids[9] + "!", limit=1)
    assert between.images[0].image_id == ids[10]
    beyond = browser.page(engine.snapshot, skip=10**12)
    assert (list(beyond.images), beyond.total, beyond.after) == ([], 48, None)


def test_a_filter(engine: GalleryEngine) -> None:
    page = Browser().page(engine.snapshot, where="colour = 'red' AND large = true", limit=5)
    assert page.total == 8
    assert {image.metadata["colour"] for image in page.images} == {"red"}
    with pytest.raises(FilterError, match='no column "size"'):
        Browser().page(engine.snapshot, where="size = 3")


def test_a_page_belongs_to_a_version(own_gallery: Any, engine_of: Any) -> None:
    engine, browser = engine_of(own_gallery), Browser()
    before = browser.page(engine.snapshot, limit=2)
    first = before.images[0].image_id
    with engine.gallery.writing():
        engine.gallery.remove([first])
        engine.gallery.put(pa.table({ID: [before.images[1].image_id], "colour": ["mauve"]}))
    old = engine.snapshot
    assert engine.refresh()
    after = browser.page(engine.snapshot, limit=2)
    assert after.total == 47
    assert after.images[0].image_id == before.images[1].image_id
    assert after.images[0].metadata["colour"] == "mauve"
    assert browser.page(old, limit=2) == before
