"""The frame of every page, and the pieces that pages share; all text is escaped here."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib.resources import files

from triptych.studies.html.views import HitView, Picture

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def escape(text: object) -> str:
    """Make any text safe between tags and inside quoted attributes."""
    return html.escape(str(text), quote=True)


def page(title: str, *sections: str, subtitle: str = "") -> str:
    """Put sections (already HTML) into a complete page."""
    style = files("triptych.studies.html").joinpath("style.css").read_text(encoding="utf-8")
    lead = f'<p class="lead">{escape(subtitle)}</p>' if subtitle else ""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{style}</style>",
            "</head>",
            "<body>",
            f"<header><h1>{escape(title)}</h1>{lead}</header>",
            "<main>",
            *sections,
            "</main>",
            "<footer>Made with Triptych. This page holds all it shows; nothing is fetched.</footer>",
            "</body>",
            "</html>",
            "",
        ]
    )


def picture(view: Picture, description: str) -> str:
    """Show a picture, or a box that says that it cannot be read."""
    if view.uri is None:
        return f'<span class="missing" role="img" aria-label="{escape(description)}">cannot be read</span>'
    if not view.uri.startswith("data:image/"):
        raise ValueError(f"the picture of {view.image_id} is no data URI; a page must hold its pictures")
    return f'<img src="{escape(view.uri)}" alt="{escape(description)}">'


def labelled_picture(view: Picture, role: str) -> str:
    """Show a picture with its role (``reference``, ``target``) and id below it."""
    caption = f"<b>{escape(role)}</b> <code>{escape(view.image_id)}</code>"
    return f"<figure>{picture(view, f'{role}: {view.image_id}')}<figcaption>{caption}</figcaption></figure>"


def hit(view: HitView, place: int) -> str:
    """Show a hit with its place, id and score; a right one has a green frame and a tick."""
    verdict = ", right" if view.right else ""
    mark = '<span class="tick" aria-hidden="true">✓</span>' if view.right else ""
    description = f"place {place}: {view.picture.image_id}{verdict}"
    image_id = escape(view.picture.image_id)
    return (
        f'<li class="hit{" right" if view.right else ""}">'
        f'<div class="frame">{picture(view.picture, description)}{mark}</div>'
        f'<div class="caption"><b>{place}</b><code title="{image_id}">{image_id}</code>'
        f'<span class="score">{view.score:.3f}</span></div></li>'
    )


def hits(views: Sequence[HitView], style: str) -> str:
    """Show hits in their order; ``style`` is ``wide`` (wraps) or ``row`` (one line)."""
    items = "".join(hit(view, place) for place, view in enumerate(views, 1))
    return f'<ol class="hits {style}">{items}</ol>'


def facts(rows: Sequence[tuple[str, str]]) -> str:
    """Show names and values, a line each."""
    lines = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in rows
    )
    return f'<table class="facts"><tbody>{lines}</tbody></table>'


def commands(lines: Sequence[str]) -> str:
    """Show what was typed."""
    return f"<pre><code>{escape(chr(10).join(lines))}</code></pre>"


LEGEND = (
    '<p class="legend"><span class="swatch right"><span class="tick" aria-hidden="true">✓</span></span>'
    "<span>Green frame and tick: a right answer. "
    "Below each picture: its place, its id and its score.</span></p>"
)
"""How to read the hits."""
