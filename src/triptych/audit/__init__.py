"""Audit: which triplets are wrong, which part of them, and what would be right."""

import sys
from types import ModuleType

from triptych.audit.api import Audit, audit, open_audit
from triptych.audit.config import AuditConfig
from triptych.audit.verdicts import Verdicts

__all__ = ["Audit", "AuditConfig", "Verdicts", "audit", "open_audit"]


class _CallableModule(ModuleType):
    """Lets ``triptych.audit(...)`` call :func:`~triptych.audit.api.audit`, as ``triptych.search(...)`` does."""

    __call__ = staticmethod(audit)


sys.modules[__name__].__class__ = _CallableModule
