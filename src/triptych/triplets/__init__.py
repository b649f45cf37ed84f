"""What an annotation is and where it comes from: triplets, pictures, benchmarks and their readers."""

from triptych.triplets.benchmark import Benchmark, QuerySet
from triptych.triplets.images import ImageError, ImageStore
from triptych.triplets.reader import read_benchmark
from triptych.triplets.table import Triplet, TripletTable

__all__ = [
    "Benchmark",
    "ImageError",
    "ImageStore",
    "QuerySet",
    "Triplet",
    "TripletTable",
    "read_benchmark",
]
