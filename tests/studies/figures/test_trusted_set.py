"""Purity and recall of the trusted set: by hand, by threshold and by the quantile of each training batch."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from triptych.errors import DataError, UsageError
from triptych.noise import NoiseManifest
from triptych.studies.figures.trusted_set import (
    draw_trusted_sets,
    lowest_share,
    purity_and_recall,
    trusted_set,
)
from triptych.training.cleanliness import SCHEMA
from triptych.training.config import settings_hash
from triptych.training.loader import epoch_order
from triptych.training.run import Run


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


def record(run: Path, values: dict[str, float], epoch: int = 1) -> None:
    columns = {
        "triplet_id": list(values),
        "epoch": [epoch] * len(values),
        "cleanliness": list(values.values()),
    }
    pq.write_table(pa.table(columns, schema=SCHEMA), run / "cleanliness.parquet")


def change(run: Path, **changes: object) -> None:
    path = run / "config.json"
    values = json.loads(path.read_text())
    values.pop("hash")
    values |= changes
    path.write_text(json.dumps({"hash": settings_hash(values), **values}))


def test_by_hand() -> None:
    """Five triplets, two of them wrong; three are trusted, one of which is wrong."""
    found = purity_and_recall([True, True, True, False, False], [False, True, False, False, True])
    assert found == pytest.approx((200 / 3, 200 / 3, 60.0, 60.0))
    purity, recall, trusted, clean = purity_and_recall([False, False], [True, True])
    assert np.isnan(purity)
    assert np.isnan(recall)
    assert (trusted, clean) == (0.0, 0.0)
    with pytest.raises(ValueError, match="twice"):
        purity_and_recall([True], [True, False])


def test_the_lowest_of_each_batch_are_not_trusted() -> None:
    values, batches = [0.9, 0.1, 0.2, 0.3, 0.5, 0.4], [0, 0, 0, 1, 1, 1]
    assert lowest_share(values, 0.5, batches).tolist() == [True, False, True, False, True, True]
    assert lowest_share(values, 0.0, batches).all()
    assert not lowest_share(values, 1.0, batches).any()


def test_a_run_against_its_manifest(run: Path) -> None:
    """Of the right triplets all but two are trusted, of the wrong ones one."""
    manifest = NoiseManifest.read(run / "noise.json")
    ids = [f for f, _ in _trusted(run)]
    right = [name for name in ids if name not in manifest.noisy_ids]
    wrong = [name for name in ids if name in manifest.noisy_ids]
    values = {name: 0.5 for name in right} | {name: 0.49 for name in wrong}
    values |= {right[0]: 0.2, right[1]: 0.3, wrong[0]: 1.0}
    record(run, values)
    found = trusted_set(run)
    trusted = len(right) - 2
    assert found.purity == pytest.approx((100 * trusted / (trusted + 1),))
    assert found.recall == pytest.approx((100 * trusted / len(right),))
    assert found.trusted == pytest.approx((100 * (trusted + 1) / len(ids),))
    assert found.clean == pytest.approx((100 * len(right) / len(ids),))
    assert (found.rule, found.epochs, found.scored) == ("cleanliness of 0.5 or more", (1,), (len(ids),))
    assert trusted_set(run, 0.25).recall == pytest.approx((100 * (len(right) - 1) / len(right),))


def test_conesep_has_its_own_threshold(run: Path) -> None:
    change(run, method={"name": "conesep", "omega": 0.7})
    assert trusted_set(run).rule == "cleanliness of 0.7 or more"


def test_a_quantile_is_of_the_batches_that_were_trained_on(run: Path, bench) -> None:
    """The value is a triplet's place in its batch of 8, so with omega = 0.25 places 0 and 1 are not trusted."""
    order = epoch_order(0, 1, len(bench.train))
    values = {bench.train.triplet_ids[row]: 0.1 * (at % 8) for at, row in enumerate(order)}
    change(run, method={"name": "conesep", "partition": "quantile", "omega": 0.25})
    record(run, values, epoch=2)
    found = trusted_set(run)
    assert found.trusted == (75.0,)
    assert found.rule == "all but the lowest 25 % of each batch"
    noisy = NoiseManifest.read(run / "noise.json").noisy_ids
    trusted = [name for name, value in values.items() if value > 0.15]
    right = sum(name not in noisy for name in trusted)
    assert found.purity == pytest.approx((100 * right / len(trusted),))


def test_runs_that_cannot_say_it(run: Path) -> None:
    (run / "cleanliness.parquet").unlink()
    with pytest.raises(DataError, match="recorded no cleanliness"):
        trusted_set(run)
    change(run, drop_noisy=True)
    with pytest.raises(UsageError, match="left the wrong triplets out"):
        trusted_set(run)
    change(run, noise=None)
    with pytest.raises(UsageError, match="without a noise manifest"):
        trusted_set(run)


def test_four_panels_and_a_legend(tiny_run: Path) -> None:
    figure = draw_trusted_sets(dict.fromkeys("abcd", trusted_set(tiny_run)), note="said below")
    assert len(figure.axes) == 4
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words[0] == "purity of the trusted set"


def _trusted(run: Path) -> list[tuple[str, float]]:
    from triptych.training.cleanliness import read_cleanliness

    ids, values = read_cleanliness(Run(run).cleanliness)
    return list(zip(ids, values, strict=True))
