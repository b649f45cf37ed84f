"""``triptych convert``."""

from pathlib import Path

import torch


def test_what_is_left_over_is_told(triptych, shared: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    state = load_file(shared / "golden" / "blip2_tiny" / "model.safetensors")
    torch.save({"model": {**state, "temp": torch.tensor(0.1)}}, tmp_path / "x.pth")
    asked = ("convert", tmp_path / "x.pth", "-o", tmp_path / "model")
    outcome = triptych(*asked)
    assert outcome.code == 2
    assert "say --vision-heads N" in outcome.said
    outcome = triptych(*asked, "--heads", 4, "--vision-heads", 4)
    assert outcome.code == 0, outcome.err
    assert "1 tensors have no place: temp" in outcome.said
    assert "no tokenizer for 120 word embeddings" in outcome.said
    assert f"Next: triptych train --data DATA --init {tmp_path / 'model'} -o RUN" in outcome.out
    assert triptych(*asked, "--heads", 4, "--vision-heads", 4).code == 2


def test_a_pickled_module_prints_the_lines_that_export_it(triptych, tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "whole.pt")
    outcome = triptych("convert", tmp_path / "whole.pt", "-o", tmp_path / "model")
    assert outcome.code == 1
    assert 'torch.save(module.state_dict(), "whole.state_dict.pt")' in outcome.err
    assert not (tmp_path / "model").exists()
