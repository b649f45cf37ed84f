"""The data set that tests share."""

from pathlib import Path

from triptych.triplets import read_benchmark
from triptych.triplets.check import check_data


def test_the_tiny_benchmark_is_clean(tiny_benchmark: Path) -> None:
    data = read_benchmark(tiny_benchmark)
    assert (len(data.train), len(data.images)) == (40, 48)
    assert [len(part.queries) for part in data.splits["val"]] == [6, 6]
    assert [len(part.gallery) for part in data.splits["val"]] == [12, 12]
    assert sum(len(right) == 2 for part in data.splits["val"] for right in part.answers.values()) == 2
    report = check_data(tiny_benchmark)
    assert not report.fails
