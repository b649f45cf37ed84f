"""What is shown while something runs; standard output stays clean."""

from types import SimpleNamespace

import pytest

from triptych.cli.progress import TrainingBar, stages, warn
from triptych.training.loop import Step


def evaluation(kept: float, removed: float) -> SimpleNamespace:
    """Stand in for an evaluation: R@10 as given, R@50 one more."""
    means = {"kept": kept, "removed": removed}

    def row(name: str, reference: str) -> SimpleNamespace:
        assert name == "composed"
        return SimpleNamespace(mean={"R@10": means[reference], "R@50": means[reference] + 1})

    return SimpleNamespace(row=row)


def test_a_log_names_each_stage_once(capsys: pytest.CaptureFixture[str]) -> None:
    with stages() as bars:
        for done in range(1, 4):
            bars("image [tokens]", done, 3)
        bars("captions", 1, 1200)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line for line in err.splitlines() if line] == ["image [tokens]: 3", "captions: 1,200"]


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with stages(quiet=True) as bars:
        bars("image tokens", 1, 3)
    assert "".join(capsys.readouterr()).strip() == ""


def test_an_epoch_is_a_line_with_its_mean_loss_and_recalls(capsys: pytest.CaptureFixture[str]) -> None:
    with stages() as bars:
        watcher = TrainingBar(bars).watcher()
        for epoch in range(2):
            for step, loss in enumerate((1.0, 2.0), 1):
                watcher.on_step(Step(epoch, 10, step, 2, {"total": loss + epoch, "robust": 0.5}, 99.0))
            watcher.on_epoch(epoch, evaluation(20.0 - epoch, 30.0), epoch == 0)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("epoch")]
    assert lines == [
        "epoch  1/10  loss 1.500  R@10  20.0 kept  30.0 removed  R@50  21.0 kept  31.0 removed  best so far",
        "epoch  2/10  loss 2.500  R@10  19.0 kept  30.0 removed  R@50  20.0 kept  31.0 removed",
    ]


def test_the_bar_counts_steps_of_all_epochs_and_shows_the_terms() -> None:
    with stages(quiet=True) as bars:
        watcher = TrainingBar(bars, "intent").watcher()
        watcher.on_step(Step(2, 10, 3, 5, {"total": 1.5, "robust": 1.0, "sod": 0.5}, 1234.5))
        (task,) = bars.bars.tasks
    assert (task.description, task.completed, task.total) == ("intent", 13, 50)
    assert task.fields["note"] == "epoch 3/10  1,234 triplets/s  loss 1.500 (robust 1.000, sod 0.500)"


def test_a_new_stage_hides_those_that_are_done() -> None:
    with stages(quiet=True) as bars:
        bars("tokens", 3, 3)
        bars("texts", 1, 3)
        bars("training", 0, 9)
        assert [task.visible for task in bars.bars.tasks] == [False, True, True]


def test_warnings_are_not_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    warn("2 pictures of [bold]x are missing")
    assert capsys.readouterr() == ("", "warning: 2 pictures of [bold]x are missing\n")
