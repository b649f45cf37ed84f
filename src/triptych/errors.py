"""The errors that a user sees: what is wrong, where, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel


class TriptychError(Exception):
    """Base of every error that Triptych raises on purpose; the command line prints it without a traceback."""

    exit_code = 1


class UsageError(TriptychError):
    """The command or call was wrong (exit code 2): an unknown option, value or combination."""

    exit_code = 2


class DataError(TriptychError):
    """The data is wrong (exit code 1). Says file, entry and field, and the mend.

    Args:
        problem: one sentence, such as ``'"target" is missing'``.
        file: the file at fault.
        row: zero-based entry of a list, or one-based line of a text file; see ``unit``.
        field: the field at fault.
        mend: what the user can do; printed on a second line.
        unit: what ``row`` counts, ``entry`` or ``line``.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        row: int | None = None,
        field: str | None = None,
        mend: str | None = None,
        unit: str = "entry",
    ) -> None:
        self.problem, self.file, self.row, self.field, self.mend, self.unit = (
            problem,
            file,
            row,
            field,
            mend,
            unit,
        )
        where = ", ".join(
            part
            for part in (str(file) if file is not None else "", f"{unit} {row}" if row is not None else "")
            if part
        )
        text = f"{where}: {problem}" if where else problem
        if field is not None and f'"{field}"' not in problem:
            text += f' (field "{field}")'
        super().__init__(text + (f"\n  {mend}" if mend else ""))


Config = TypeVar("Config", bound="BaseModel")


def explain_validation(model: type[Config], values: dict[str, Any], what: str) -> Config:
    """Validate settings, and say in a line a problem which one is wrong.

    Args:
        model: the settings' model.
        values: the settings as given.
        what: what they are settings of, such as ``method intent``.

    Raises:
        UsageError: a key is unknown (the known ones are listed) or a value does not fit.
    """
    from pydantic import ValidationError  # only here: `triptych --help` need not wait for it

    try:
        return model.model_validate(values)
    except ValidationError as error:
        lines = []
        for problem in error.errors(include_url=False):
            path = ".".join(map(str, problem["loc"]))
            if problem["type"] == "extra_forbidden":
                known: Any = model
                for name in problem["loc"][:-1]:
                    known = known.model_fields[str(name)].annotation
                lines.append(f'{what}: unknown setting "{path}"; known here: {", ".join(known.model_fields)}')
            elif path:
                said = problem["msg"].removeprefix("Value error, ")
                lines.append(f'{what}: setting "{path}": {said} (got {problem["input"]!r})')
            else:  # a check of several settings together; its message names them
                lines.append(f"{what}: {problem['msg'].removeprefix('Value error, ')}")
        raise UsageError("\n".join(lines)) from None
