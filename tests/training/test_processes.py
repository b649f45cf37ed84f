"""The accelerator, and what it is refused for."""

import pytest
import torch

from triptych.errors import UsageError
from triptych.training.processes import Processes, make_accelerator


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("no_gpu")
def test_fp16_without_a_gpu_says_what_works() -> None:
    with pytest.raises(UsageError, match=r"fp16 needs a GPU.*use bf16 or no"):
        make_accelerator("fp16")


def test_a_gpu_without_bf16_says_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    with pytest.raises(UsageError, match=r"cannot compute in bf16; use training\.precision = fp16 or no"):
        make_accelerator("bf16")


def test_processes_that_do_not_know_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """`accelerate launch --cpu` and others leave it at that, and each process would train on its own."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match=r"(?s)2 processes were started.*knows of no other.*torchrun"):
        make_accelerator("no")


@pytest.mark.usefixtures("no_gpu")
def test_one_precision_after_the_other() -> None:
    assert make_accelerator("bf16").mixed_precision == "bf16"
    accelerator = make_accelerator("no")
    assert accelerator.mixed_precision == "no"
    assert accelerator.device.type == "cpu"


def test_one_process_exchanges_nothing() -> None:
    processes = Processes()
    tensor = torch.ones(3, requires_grad=True)
    assert processes.main
    assert processes.gather(tensor, 3) is processes.cut(tensor) is processes.common(tensor) is tensor
    assert processes.largest([3, 1]) == [3, 1]
    assert processes.of_main(2.5) == 2.5
    assert processes.any(True)
    processes.sum([tensor])
    with processes.main_first():
        processes.wait()
