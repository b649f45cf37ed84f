"""``triptych evaluate --submission`` and ``triptych submission check``."""

import json
from pathlib import Path

import pytest

from triptych.triplets import read_benchmark


@pytest.fixture(scope="module")
def cirr_files(tiny_run: Path, tiny_cirr: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    from triptych.training.submit import submit

    return list(submit(tiny_run, tiny_cirr, tmp_path_factory.mktemp("out"), split="test1"))


@pytest.fixture(scope="module")
def circo_file(tiny_run: Path, tiny_circo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from triptych.training.submit import submit

    (path,) = submit(tiny_run, tiny_circo, tmp_path_factory.mktemp("out"), split="test")
    return path


def test_cirr_has_two_files_that_pass(triptych, tiny_run: Path, tiny_cirr: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    outcome = triptych("evaluate", tiny_run, "--data", tiny_cirr, "--split", "test1", "--submission", out)
    assert outcome.code == 0, outcome.err
    assert sorted(path.name for path in out.iterdir()) == [
        "cirr_test1_recall.json",
        "cirr_test1_recall_subset.json",
    ]
    assert outcome.out.count("passes") == 2
    recall, subset = (
        json.loads((out / f"cirr_test1_{m}.json").read_text()) for m in ("recall", "recall_subset")
    )
    assert (recall["version"], recall["metric"], subset["metric"]) == ("rc2", "recall", "recall_subset")
    (part,) = read_benchmark(tiny_cirr).splits["test1"]
    for query in part.queries:
        key = query.triplet_id.removeprefix("test1.")
        best, own = recall.pop(key), subset.pop(key)
        assert (len(best), len(own)) == (50, 3)
        assert query.reference not in best
        assert set(own) <= set(query.group or ()) - {query.reference}
        ranked = [name for name in best if name in (query.group or ())]
        assert own[: len(ranked)] == ranked[:3], "one ranking gives both"
    assert set(recall) == set(subset) == {"version", "metric"}


def test_circo_has_one_file_that_passes(triptych, tiny_run: Path, tiny_circo: Path, tmp_path: Path) -> None:
    outcome = triptych(
        "evaluate", tiny_run, "--data", tiny_circo, "--split", "test", "--submission", tmp_path / "out"
    )
    assert outcome.code == 0, outcome.err
    answers = json.loads((tmp_path / "out" / "circo_test.json").read_text())
    assert list(answers) == ["0", "1", "2"]
    assert all(len(set(ids)) == 50 and all(type(number) is int for number in ids) for ids in answers.values())
    assert all(7 * int(query) + 22 not in ids for query, ids in answers.items()), "references are taken out"


def test_labels_on_the_server(triptych, tiny_run: Path, tiny_cirr: Path, tiny_circo: Path) -> None:
    for data, split, count in ((tiny_cirr, "test1", 3), (tiny_circo, "test", 3)):
        outcome = triptych("evaluate", tiny_run, "--data", data, "--split", split)
        assert outcome.code == 1
        assert f"none of the {count} queries of split" in outcome.said
        assert "the labels are on the server: use --submission" in outcome.said


def test_data_without_a_server(triptych, tiny_run: Path, tiny_benchmark: Path, tmp_path: Path) -> None:
    outcome = triptych("evaluate", tiny_run, "--data", tiny_benchmark, "--submission", tmp_path / "x")
    assert (outcome.code, (tmp_path / "x").exists()) == (2, False)
    assert "tiny has no server to submit to" in outcome.said
    outcome = triptych("evaluate", tiny_run, "--submission", tmp_path / "x", "--leave-out-missing")
    assert outcome.code == 2
    assert "the server wants every query" in outcome.said


def test_a_gallery_that_is_too_small_is_a_fault(
    triptych, tiny_run: Path, tiny_cirr: Path, tmp_path: Path
) -> None:
    outcome = triptych("evaluate", tiny_run, "--data", tiny_cirr, "--submission", tmp_path / "out")
    assert outcome.code == 1
    assert "11 names are listed; exactly 50 are expected" in outcome.out


def change(path: Path, to: Path, edit) -> Path:
    values = json.loads(path.read_text())
    edited = edit(values)
    to.write_text(json.dumps(values if edited is None else edited))
    return to


FIRST = "12019"  # the first query of test1
CIRR_FAULTS = [
    (lambda v: v.pop("version") and None, 'version" must be "rc2"; it is missing'),
    (lambda v: v.update(version="rc1"), '"version" must be "rc2"; it is \'rc1\''),
    (lambda v: v.update(metric="recal"), '"metric" must be "recall" or "recall_subset"; it is \'recal\''),
    (lambda v: v.pop("metric") and None, '"metric" must be "recall" or "recall_subset"; it is missing'),
    (lambda v: v.pop(FIRST) and None, "the file answers 2 queries; split test1 of cirr has 3"),
    (lambda v: v.pop(FIRST) and None, f"1 queries are not answered, such as {FIRST}"),
    (lambda v: v.update({"99": v[FIRST]}), '"99" is no query of split test1 of cirr'),
    (lambda v: v[FIRST].pop() and None, f"query {FIRST}: 49 names are listed; exactly 50 are expected"),
    (lambda v: v[FIRST].__setitem__(3, "who"), f'query {FIRST}: "who" is no picture of test1'),
    (lambda v: v[FIRST].__setitem__(3, v[FIRST][0]), "is listed twice"),
    (lambda v: v[FIRST].__setitem__(3, 5), f"query {FIRST}: 5 is not a name in quotes"),
    (lambda v: v.update({FIRST: "x"}), f"query {FIRST}: a list of names is expected"),
    (lambda v: v[FIRST].__setitem__(0, "test1-0-0-img0"), 'its own reference "test1-0-0-img0" is listed'),
    (lambda v: [v], "the file must hold one object"),
    (lambda v: {**v, "x": "y" * 5_000_001}, "the server takes 5,000,000 (5 MB)"),
]


@pytest.mark.parametrize(("edit", "message"), CIRR_FAULTS)
def test_each_fault_of_cirr_has_its_message(
    edit, message: str, triptych, cirr_files: list[Path], tiny_cirr: Path, tmp_path: Path
) -> None:
    path = change(cirr_files[0], tmp_path / "file.json", edit)
    outcome = triptych("submission", "check", path, "--data", tiny_cirr)
    assert outcome.code == 1
    assert message in " ".join(outcome.out.split())


def test_a_name_outside_the_subset(triptych, cirr_files: list[Path], tiny_cirr: Path, tmp_path: Path) -> None:
    path = change(cirr_files[1], tmp_path / "f.json", lambda v: v[FIRST].__setitem__(0, "test1-40-0-img0"))
    outcome = triptych("submission", "check", path, "--data", tiny_cirr)
    assert outcome.code == 1
    assert '"test1-40-0-img0" is not a member of its subset' in outcome.out
    short = change(cirr_files[1], tmp_path / "g.json", lambda v: v[FIRST].pop() and None)
    assert "2 names are listed; exactly 3" in triptych("submission", "check", short, "--data", tiny_cirr).out


CIRCO_FAULTS = [
    (lambda v: v.pop("1") and None, "1 queries are not answered, such as 1"),
    (lambda v: v["1"].pop() and None, "query 1: 49 ids are listed; exactly 50 are expected"),
    (lambda v: v["1"].__setitem__(0, "22"), 'query 1: "22" is not a whole number'),
    (lambda v: v["1"].__setitem__(0, 1), "query 1: 1 is no picture of test"),
    (lambda v: v["1"].__setitem__(0, v["1"][1]), "is listed twice"),
    (lambda v: v.update(version="rc2"), "are CIRR's, but CIRCO is CIRCO: remove them"),
]


@pytest.mark.parametrize(("edit", "message"), CIRCO_FAULTS)
def test_each_fault_of_circo_has_its_message(
    edit, message: str, triptych, circo_file: Path, tiny_circo: Path, tmp_path: Path
) -> None:
    path = change(circo_file, tmp_path / "file.json", edit)
    outcome = triptych("submission", "check", path, "--data", tiny_circo)
    assert outcome.code == 1
    assert message in " ".join(outcome.out.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the file is not JSON"),
        ('{"0": [1], "0": [2]}', 'the key "0" is there twice'),
        ("[1]", "one object"),
    ],
)
def test_what_is_no_submission(text: str, message: str, triptych, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    outcome = triptych("submission", "check", tmp_path / "x.json")
    assert outcome.code == 1
    assert message in outcome.out
    assert triptych("submission", "check", tmp_path / "gone.json").code == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cirr/demo_files/test1_pred_ranks_recall.json", "cirr recall"),
        ("cirr/demo_files/test1_pred_ranks_recall_subset.json", "cirr recall_subset"),
        ("circo/submission_examples/submission_test.json", "circo"),
        ("circo/submission_examples/submission_val.json", "circo"),
    ],
)
def test_the_official_examples_pass(name: str, kind: str, triptych, shared: Path) -> None:
    path = shared / "data" / name
    for data in ((), ("--data", shared / "data" / name.partition("/")[0])):
        report = json.loads(triptych("submission", "check", path, *data, "--json").out)
        assert (report["passes"], report["kind"], report["faults"]) == (True, kind, [])
        expected = [] if data and kind != "circo" else ["known pictures"]
        assert report["unchecked"][-2 if not data else 0 :][:1] == expected


def test_the_official_examples_and_ours_have_one_shape(
    cirr_files: list[Path], circo_file: Path, shared: Path
) -> None:
    def shape(path: Path) -> tuple:
        values = json.loads(path.read_text())
        special = {key: values.pop(key) for key in ("version", "metric") if key in values}
        return (
            special,
            {len(names) for names in values.values()},
            {type(n) for names in values.values() for n in names},
        )

    for own, name in zip(cirr_files, ("recall", "recall_subset"), strict=True):
        assert shape(own) == shape(shared / "data" / "cirr" / "demo_files" / f"test1_pred_ranks_{name}.json")
    assert shape(circo_file) == shape(
        shared / "data" / "circo" / "submission_examples" / "submission_test.json"
    )
