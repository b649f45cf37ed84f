"""What Prometheus is told."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import Scope

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self._requests = Counter(
            "triptych_requests", "Requests answered.", ["route", "method", "status"], registry=own
        )
        self._seconds = Histogram(
            "triptych_request_seconds", "Seconds a request took.", ["route"], buckets=_SECONDS, registry=own
        )
        self.in_flight = Gauge("triptych_in_flight", "Requests being answered.", registry=own)
        self.batch = Histogram(
            "triptych_batch_queries",
            "Queries embedded together.",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=own,
        )
        self.find_seconds = Histogram(
            "triptych_find_seconds", "Seconds of finding, encoding apart.", buckets=_SECONDS, registry=own
        )
        self.images = Gauge("triptych_gallery_images", "Images in the gallery.", registry=own)
        self.version = Gauge("triptych_gallery_version", "Version of the gallery.", registry=own)
        self.feedback = Counter("triptych_feedback", "Triplets taken as feedback.", registry=own)

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count an answered request under its route (not its path: ids would make a series each)."""
        route = getattr(scope.get("route"), "path", "other")
        self._requests.labels(route, scope["method"] if route != "other" else "other", str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Return all of it, as Prometheus reads it."""
        return bytes(generate_latest(self.registry))
