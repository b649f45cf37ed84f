"""No golden value is forgotten: each file has one test that compares all of it, or whose assertions name each key.

The tests that read a file through the fixture ``golden`` fail by themselves where they leave a key out, see
``check_golden``; here their sources are read to see that there is such a test for each file. So this test needs none
of the others to have run, and works alone and on any worker.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TESTS = Path(__file__).parents[1]

NAMED = {"blip2_parity": "backbones/test_composer.py", "eval_metrics": "evaluation/test_golden.py"}
"""Files that several tests of a module share: each key stands in one of its assertions."""

LOOPED = {"noise_injection": "noise/test_inject.py"}
"""Files whose keys are read by their parts: a test asserts at its end that it has compared them all."""

PROMISED = {"released", "paper", "fixed", "rec", "recommended", "switch"}
"""Words of keys that may never be excluded."""

Keys = Callable[[str, Iterable[str]], set[str]]


def functions(source: str) -> Iterator[ast.FunctionDef]:
    """Find the tests of a module that nothing skips."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if not any(word in decorators for word in ("skip", "xfail", "slow")):
                yield node


def files_read(test: ast.FunctionDef) -> Iterator[str]:
    """Find what a test gives to ``golden``: a text, or one with a parametrised name in it."""
    given = [
        call.args[0]
        for call in ast.walk(test)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "golden"
    ]
    for text in given:
        if isinstance(text, ast.Constant):
            yield str(text.value)
        elif isinstance(text, ast.JoinedStr):
            for decorator in test.decorator_list:
                if (
                    isinstance(decorator, ast.Call)
                    and ast.unparse(decorator.func) == "pytest.mark.parametrize"
                ):
                    name, values = map(ast.literal_eval, decorator.args[:2])
                    for value in values:
                        yield ast.unparse(text)[2:-1].replace(f"{{{name}}}", value)


def words_in_assertions(source: str) -> set[str]:
    """Find all texts inside ``assert``, calls of ``assert_...``, and calls of ``agree``."""
    return {
        text.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assert)
        or (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).split(".")[-1].startswith(("assert", "agree"))
        )
        for text in ast.walk(node)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
    }


def forgotten(folder: Path, tests: Path, to_compare: Keys) -> list[str]:
    """List the golden files that no test compares or more than one, and the keys that no assertion names."""
    whole = Counter(
        stem
        for path in tests.rglob("test_*.py")
        for test in functions(path.read_text(encoding="utf-8"))
        for stem in set(files_read(test))
    )
    problems = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as stored:
            keys = to_compare(path.stem, stored.files)
        if path.stem in NAMED:
            keys -= words_in_assertions((tests / NAMED[path.stem]).read_text(encoding="utf-8"))
            problems += [f"{path.stem}: {NAMED[path.stem]} asserts nothing of {key}" for key in sorted(keys)]
        elif path.stem in LOOPED:
            bodies = map(ast.unparse, functions((tests / LOOPED[path.stem]).read_text(encoding="utf-8")))
            if (
                sum(path.name in body and "assert compared == set(golden.files)" in body for body in bodies)
                != 1
            ):
                problems.append(f"{path.stem}: no test in {LOOPED[path.stem]} compares all of it")
        elif keys and whole[path.stem] != 1:
            problems.append(f"{path.stem}: {whole[path.stem]} tests compare it, not one")
    return problems


def test_every_golden_value_is_compared(shared: Path, to_compare: Keys) -> None:
    assert len(list((shared / "golden").glob("*.npz"))) >= 25
    assert forgotten(shared / "golden", TESTS, to_compare) == []


def test_what_is_excluded_is_there_and_was_not_promised(
    shared: Path, golden_exclusions: Mapping[str, str]
) -> None:
    keys = [f"{path.stem}/{key}" for path in (shared / "golden").glob("*.npz") for key in np.load(path).files]
    for pattern, reason in golden_exclusions.items():
        matched = [key for key in keys if fnmatchcase(key, pattern)]
        assert matched, f"{pattern} excludes nothing"
        assert reason
        for key in matched:
            assert not PROMISED & set(key.partition("/")[2].split("_")), f"{pattern} excludes {key}"


READS = "def test_new(golden, check_golden):\n    check_golden({{}}, golden({}))\n"


@pytest.mark.parametrize(
    ("test", "complaint"),
    [
        (READS.format("'new_b16'"), None),
        ("@pytest.mark.parametrize('size', ['b8', 'b16'])\n" + READS.format("f'new_{size}'"), None),
        ("@pytest.mark.parametrize('size', ['b8'])\n" + READS.format("f'new_{size}'"), "new_b16: 0 tests"),
        ("@pytest.mark.skip\n" + READS.format("'new_b16'"), "new_b16: 0 tests"),
        (READS.format("'new_b16'") + READS.format("'new_b16'").replace("new(", "again("), "new_b16: 2 tests"),
        ("'new_b16'", "new_b16: 0 tests"),
    ],
)
def test_a_file_without_its_one_test_is_found(
    tmp_path: Path, to_compare: Keys, test: str, complaint: str | None
) -> None:
    np.savez(tmp_path / "new_b16.npz", loss=np.zeros(3))
    (tmp_path / "test_new.py").write_text(test)
    found = forgotten(tmp_path, tmp_path, to_compare)
    assert [line.startswith(str(complaint)) for line in found] == ([True] if complaint else [])


def test_a_key_that_no_assertion_names_is_found(tmp_path: Path, to_compare: Keys) -> None:
    np.savez(tmp_path / "eval_metrics.npz", query=np.zeros(3), recall=np.zeros(3), precision=np.zeros(3))
    module = tmp_path / NAMED["eval_metrics"]
    module.parent.mkdir()
    module.write_text(
        "def test_x(golden):\n    precision = golden['precision']\n    assert golden['recall'] == 1"
    )
    assert forgotten(tmp_path, tmp_path, to_compare) == [
        "eval_metrics: evaluation/test_golden.py asserts nothing of precision"
    ]


def test_a_key_that_is_not_computed_or_is_its_own_proof_fails(
    shared: Path, golden: Callable[[str], Any], check_golden: Callable[..., None]
) -> None:
    file = "sprc_b16"  # by a name, so that this does not count as its test
    stored = golden(file)
    computed = {name: value + 0 for name, value in stored.items() if not name.endswith("_tokens")}
    check_golden(computed, stored)
    with pytest.raises(AssertionError, match="loss_itc"):
        check_golden({name: value for name, value in computed.items() if name != "loss_itc"}, stored)
    with pytest.raises(AssertionError, match="itself"):
        check_golden(computed | {"loss_itc": stored["loss_itc"]}, stored)
    with pytest.raises(AssertionError, match="loss_itc"):
        check_golden(computed | {"loss_itc": stored["loss_itc"] * 1.0001}, stored)
    with pytest.raises(AssertionError, match="another"):
        check_golden(computed | {"another": stored["loss_itc"] + 0}, stored)
