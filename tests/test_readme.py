"""The README's Python runs."""

import re
from pathlib import Path

import pytest

from triptych.triplets.rendered import render_benchmark

README = Path(__file__).parents[1] / "README.md"


def snippets() -> list[str]:
    return re.findall(
        r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )


@pytest.mark.usefixtures("lite_weights")
def test_the_five_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = next(code for code in snippets() if "triptych.search(" in code)
    assert len([line for line in code.splitlines() if line]) == 6  # the import, and five lines
    render_benchmark(tmp_path / "shapes", train=20, val=9)
    monkeypatch.chdir(tmp_path)
    quick = code.replace("noise=noise)", 'noise=noise, training={"epochs": 1, "batch_size": 20})')
    assert quick != code  # the same calls, a tenth of the time
    names: dict[str, object] = {}
    exec(compile(quick, str(README), "exec"), names)
    assert "R@10" in capsys.readouterr().out
    hits = names["hits"]
    assert isinstance(hits, list)
    assert [hit.rank for hit in hits] == [1, 2, 3, 4, 5]
    assert (tmp_path / "run" / "noise.json").is_file()
