"""Search: from a picture and a sentence to the pictures of a gallery, best first."""

import sys
from types import ModuleType

from triptych.search.engine import Hit, SearchEngine, search

__all__ = ["Hit", "SearchEngine", "search"]


class _CallableModule(ModuleType):
    """Lets ``triptych.search(...)`` call :func:`~triptych.search.engine.search`.

    This package and the public function have one name, and importing the package binds it in ``triptych``,
    whatever was there before.
    """

    __call__ = staticmethod(search)


sys.modules[__name__].__class__ = _CallableModule
