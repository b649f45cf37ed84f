"""A checkpoint: everything back bit for bit, or an error that names the file."""

from pathlib import Path

import pytest
import torch
from torch import nn

from triptych.errors import DataError
from triptych.training.checkpoint import Progress, load_checkpoint, save_checkpoint


def trained(seed: int, steps: int = 3) -> tuple[nn.Module, torch.optim.AdamW]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, eps=1e-7)
    for _ in range(steps):
        step(model, optimizer)
    return model, optimizer


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(5, 3)).square().sum().backward()
    optimizer.step()


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
    names = [name for name, _ in model.named_parameters()]
    save_checkpoint(path, model.state_dict(), optimizer, names, progress, {"seen": torch.arange(3)})


def test_round_trip(tmp_path: Path) -> None:
    """The next step after loading is the step that would have come."""
    model, optimizer = trained(0)
    progress = Progress(
        epoch=3, step=17, best_score=41.5, best_epoch=2, epochs_without_gain=1, metrics_lines=99, data="abc"
    )
    save(tmp_path / "c.safetensors", model, optimizer, progress)
    other, fresh = trained(1, steps=0)
    tensors, remembered, found = load_checkpoint(
        tmp_path / "c.safetensors", fresh, dict(other.named_parameters())
    )
    assert found == progress
    assert remembered["seen"].tolist() == [0, 1, 2]
    other.load_state_dict(tensors)
    assert float(fresh.state[other[0].weight]["step"]) == 3
    step(model, optimizer)
    step(other, fresh)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_before_the_first_step(tmp_path: Path) -> None:
    model, optimizer = trained(0, steps=0)
    save(tmp_path / "c.safetensors", model, optimizer, Progress())
    other, fresh = trained(1, steps=0)
    _, _, found = load_checkpoint(tmp_path / "c.safetensors", fresh, dict(other.named_parameters()))
    assert found == Progress()
    assert not fresh.state


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(tmp_path / name, *trained(0), Progress(epoch=1))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("damage", ["cut", "empty", "other", "position"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "c.safetensors"
    model, optimizer = trained(0)
    save(path, model, optimizer, Progress())
    whole = path.read_bytes()
    content = {
        "cut": whole[: len(whole) // 2],
        "empty": b"",
        "other": b"not a checkpoint",
        "position": whole.replace(b'\\"epoch\\"', b'\\"epoxh\\"'),
    }[damage]
    assert content != whole
    path.write_bytes(content)
    with pytest.raises(DataError, match="the checkpoint cannot be read") as caught:
        load_checkpoint(path, optimizer, dict(model.named_parameters()))
    assert str(path) in str(caught.value)
    assert caught.value.mend


def test_a_failed_write_keeps_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors.torch

    path = tmp_path / "c.safetensors"
    model, optimizer = trained(0)
    save(path, model, optimizer, Progress(epoch=1))
    before = path.read_bytes()

    def full(tensors: object, name: Path, metadata: object) -> None:
        Path(name).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(DataError, match="disk is full"):
        save(path, model, optimizer, Progress(epoch=2))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.safetensors"]
