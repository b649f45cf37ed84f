"""Search: from a picture and a sentence to the pictures of a gallery, best first.

A benchmark's pictures are searched in memory (:class:`SearchEngine`); a :class:`Gallery` is a folder on disk that
:func:`index_images` fills and :class:`GalleryEngine` searches with a :class:`Query`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triptych.search.engine import Hit as Hit
    from triptych.search.engine import SearchEngine as SearchEngine
    from triptych.search.engine import search as search
    from triptych.search.gallery import Gallery as Gallery
    from triptych.search.gallery import GalleryStatus as GalleryStatus
    from triptych.search.gallery_engine import Answer as Answer
    from triptych.search.gallery_engine import GalleryEngine as GalleryEngine
    from triptych.search.gallery_engine import GalleryHit as GalleryHit
    from triptych.search.indexing import index_images as index_images
    from triptych.search.pictures import find_pictures as find_pictures
    from triptych.search.query import Query as Query
    from triptych.search.query import Reference as Reference
    from triptych.search.query import Text as Text

_HOME = {
    "Answer": "gallery_engine",
    "Gallery": "gallery",
    "GalleryEngine": "gallery_engine",
    "GalleryHit": "gallery_engine",
    "GalleryStatus": "gallery",
    "Hit": "engine",
    "Query": "query",
    "Reference": "query",
    "SearchEngine": "engine",
    "Text": "query",
    "find_pictures": "pictures",
    "index_images": "indexing",
    "search": "engine",
}

__all__ = [
    "Answer",
    "Gallery",
    "GalleryEngine",
    "GalleryHit",
    "GalleryStatus",
    "Hit",
    "Query",
    "Reference",
    "SearchEngine",
    "Text",
    "find_pictures",
    "index_images",
    "search",
]


class _CallableModule(ModuleType):
    """Lets ``triptych.search(...)`` call :func:`~triptych.search.engine.search`.

    This package and the public function have one name, and importing the package binds it in ``triptych``,
    whatever was there before. Names are imported when they are first used: a list of pictures needs no torch.
    """

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        from triptych.search.engine import search

        return search(*arguments, **settings)

    def __getattr__(self, name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'triptych.search' has no attribute {name!r}")
        value = getattr(import_module(f"triptych.search.{_HOME[name]}"), name)
        if not isinstance(value, ModuleType):
            self.__dict__[name] = value
        return value


sys.modules[__name__].__class__ = _CallableModule
