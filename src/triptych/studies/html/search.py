"""The page of one search: the reference, the text, and what was found."""

from __future__ import annotations

from collections.abc import Sequence

from triptych.studies.html.page import LEGEND, commands, escape, facts, hits, labelled_picture, page
from triptych.studies.html.views import HitView, QueryView


def search_page(
    query: QueryView,
    found: Sequence[HitView],
    *,
    title: str = "Composed search",
    details: Sequence[tuple[str, str]] = (),
    command: str | None = None,
) -> str:
    """Make the page of a search: a complete HTML document.

    Args:
        query: the reference picture and the text.
        found: the hits, best first; an empty one is said in words.
        title: of the page.
        details: names and values that tell where the hits come from (model, data, gallery size).
        command: what was typed.
    """
    how = "".join([facts(details) if details else "", commands([command]) if command else ""])
    legend = LEGEND if any(view.right for view in found) else ""
    best = "<h2>Hits, best first</h2>" if found else "<h2>No hits</h2><p>The gallery is empty.</p>"
    return page(
        title,
        f'<section class="card query">{query_parts(query)}</section>',
        f"<section>{best}{legend}{hits(found, 'wide')}</section>",
        f"<section><h2>How it was made</h2>{how}</section>" if how else "",
        subtitle="One picture, one sentence, and the pictures that fit both best.",
    )


def query_parts(query: QueryView) -> str:
    """Show reference, text and, where it is known, target; what a query lacks is left out."""
    reference = labelled_picture(query.reference, "reference") if query.reference else ""
    target = labelled_picture(query.target, "target") if query.target else ""
    text = f"<blockquote>{escape(query.text)}</blockquote>" if query.text else ""
    return f"{reference}{text}{target}"
