"""Plain tables as a page: a comparison of runs."""

from __future__ import annotations

from collections.abc import Sequence

from triptych.evaluation.tables import Table
from triptych.studies.html.page import escape, page


def tables_page(title: str, tables: Sequence[Table], notes: Sequence[str], subtitle: str = "") -> str:
    """Make a complete page of tables with the notes below them; quoted rows are in italics."""
    below = "<section><ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul></section>"
    return page(title, *map(_section, tables), below, subtitle=subtitle)


def _section(table: Table) -> str:
    def row(cells: Sequence[str], tag: str, mark: str = "") -> str:
        inside = "".join(
            f"<{tag}{'' if position < table.names else ' class=number'}>"
            f"{f'<{mark}>{escape(cell)}</{mark}>' if mark else escape(cell)}</{tag}>"
            for position, cell in enumerate(cells)
        )
        return f"<tr>{inside}</tr>"

    body = "".join(
        row(cells, "td", "em" if table.is_quoted(at) else "strong" if table.headline[at] else "")
        for at, cells in enumerate(table.rows)
    )
    return (
        f'<section><h2>{escape(table.title)}</h2><div class="scroll"><table>'
        f"<thead>{row(table.header, 'th')}</thead><tbody>{body}</tbody></table></div></section>"
    )
