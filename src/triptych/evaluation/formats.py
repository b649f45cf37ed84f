"""Tables as text for other programs: Markdown, LaTeX (booktabs), CSV, JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from triptych.evaluation.tables import Table, markdown_table

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


def to_markdown(tables: Sequence[Table], notes: Sequence[str]) -> str:
    """Write tables and the notes below them as Markdown."""
    below = "\n".join(f"- {note}" for note in notes)
    return "\n\n".join([*map(markdown_table, tables), below]) + "\n"


def to_latex(tables: Sequence[Table], notes: Sequence[str]) -> str:
    """Write tables as LaTeX; they need the package booktabs. Quoted rows are in italics.

    Example:
        >>> table = Table("Recall", ("method", "R@10"), (("my_run", "48.2 ± 0.3"),), 1, (False,))
        >>> print(to_latex([table], ["percent"]).splitlines()[-9])
        my\\_run & 48.2 $\\pm$ 0.3 \\\\
    """
    lines = ["% needs \\usepackage{booktabs}"]
    for table in tables:
        columns = "l" * table.names + "r" * (len(table.header) - table.names)
        lines += [
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{latex(table.title)}}}",
            f"\\begin{{tabular}}{{{columns}}}",
            "\\toprule",
            " & ".join(map(latex, table.header)) + " \\\\",
            "\\midrule",
        ]
        for number, row in enumerate(table.rows):
            cells = list(map(latex, row))
            if table.is_quoted(number):
                cells = [f"\\textit{{{cell}}}" if cell else cell for cell in cells]
            elif table.headline[number]:
                cells = [f"\\textbf{{{cell}}}" for cell in cells]
            lines.append(" & ".join(cells) + " \\\\")
        lines += ["\\bottomrule", "\\end{tabular}", "\\end{table}", ""]
    lines += [f"% {note}" for text in notes for note in text.splitlines()]
    return "\n".join(lines) + "\n"


def latex(text: str) -> str:
    """Escape text for LaTeX."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Write flat records as CSV; the columns are those of any record, in order of first appearance."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def to_json(records: Sequence[Mapping[str, Any]], notes: Sequence[str], **facts: Any) -> str:
    """Write flat records as JSON, with facts about them and notes."""
    values = {**facts, "notes": list(notes), "figures": list(records)}
    return json.dumps(values, ensure_ascii=False, indent=2) + "\n"
