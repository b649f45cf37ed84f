"""Run the command line in this process."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

from triptych.cli.main import app


@dataclass(frozen=True)
class Outcome:
    """What a command printed and its exit code."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Return the error in one line, as a wrapped terminal would not."""
        return " ".join(self.err.split())


Invoke = Callable[..., Outcome]


@pytest.fixture
def triptych() -> Invoke:
    """``triptych("evaluate", run)``: run a command; an exception that is none of ours is raised."""

    def invoke(*arguments: object, columns: int = 120) -> Outcome:
        words = [str(argument) for argument in arguments]
        result = CliRunner().invoke(app, words, env={"COLUMNS": str(columns)}, catch_exceptions=False)
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return invoke
