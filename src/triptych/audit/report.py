"""The page for review: every suspect triplet with its pictures, what is wrong with it and what would be right.

One file that fetches nothing. Its data is compact JSON and only the suspects that are shown are in the document, so
tens of thousands stay quick. Without JavaScript it is a plain table.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from triptych.audit.changes import DECISIONS_FORMAT
from triptych.audit.probes import CORNERS
from triptych.audit.rules import RULES
from triptych.audit.verdicts import Verdicts
from triptych.files import atomic_write
from triptych.triplets.images import ImageError, ImageStore
from triptych.triplets.thumbnail import thumbnail_data_uri

Stages = Callable[[str, int, int], None]

PICTURES_BYTES = 32 * 2**20
"""The page's pictures take no more than this; the worst suspects go first, and it says what is left out."""
SIDE, QUALITY = 112, 70
PLAIN_ROWS = 2000
"""Rows of the table without JavaScript, worst first."""


def write_report(
    path: Path,
    verdicts: Verdicts,
    summary: Mapping[str, Any],
    images: ImageStore,
    *,
    pictures_bytes: int = PICTURES_BYTES,
    stages: Stages | None = None,
) -> Path:
    """Write the page.

    Args:
        path: the HTML file.
        verdicts: flagged triplets, and those that a rule suspects, are shown.
        summary: of the audit.
        images: the pictures.
        pictures_bytes: what the page's pictures may take.
        stages: called with (what is being done, done, total).
    """
    suspects = suspects_of(verdicts)
    pictures, left_out = _pictures(suspects, images, pictures_bytes, stages)
    unreadable = dict(summary.get("unreadable_pictures", {}))
    data = {
        "fingerprint": str(verdicts.info.get("fingerprint", ""))[:32],
        "decisions_format": DECISIONS_FORMAT,
        "suspects": suspects,
        "pictures": pictures,
        "unreadable": unreadable,
    }
    with atomic_write(path) as file:
        file.writelines(_page(data, summary, suspects, left_out, pictures_bytes))
    return path


def suspects_of(verdicts: Verdicts) -> list[dict[str, Any]]:
    """Take what the page shows of each suspect, worst first."""
    names = [name for name in verdicts.data.schema.names if name != "evidence"]
    columns = {name: verdicts.column(name) for name in names}
    found = []
    for row in range(len(verdicts)):
        rules = columns["rules"][row]
        if not columns["flagged"][row] and all(RULES[rule][0] == "note" for rule in rules):
            continue
        found.append(
            {
                "id": columns["triplet_id"][row],
                "place": row,
                "category": columns["category"][row],
                "reference": columns["reference"][row],
                "captions": columns["captions"][row],
                "target": columns["target"][row],
                "score": round(columns["score"][row], 4),
                "corner": columns["corner"][row],
                "corners": [round(columns[f"p_{corner}"][row], 3) for corner in CORNERS],
                "rules": rules,
                "reasons": columns["reasons"][row],
                "better": {
                    corner: columns[f"better_{corner}s"][row]
                    for corner in CORNERS
                    if columns[f"better_{corner}s"][row]
                },
            }
        )
    return sorted(found, key=lambda suspect: (suspect["score"], suspect["place"]))


def _pictures(
    suspects: Sequence[Mapping[str, Any]], images: ImageStore, limit: int, stages: Stages | None
) -> tuple[dict[str, str], int]:
    """Make thumbnails until the limit is reached; triplets' own pictures before those of proposals."""
    own = (name for suspect in suspects for name in (suspect["reference"], suspect["target"]) if name)
    proposed = (
        name
        for suspect in suspects
        for corner in ("target", "reference")
        for name in suspect["better"].get(corner, ())
    )
    wanted = list(dict.fromkeys((*own, *proposed))) if len(images) else []
    found: dict[str, str] = {}
    size = 0
    for done, name in enumerate(wanted, 1):
        try:
            uri = thumbnail_data_uri(images.load(name), SIDE, quality=QUALITY)
        except ImageError:
            continue
        if size + len(uri) > limit:
            return found, len(wanted) - done + 1
        found[name] = uri
        size += len(uri)
        if stages is not None:
            stages("report", done, len(wanted))
    return found, 0


def _page(
    data: Mapping[str, Any],
    summary: Mapping[str, Any],
    suspects: Sequence[Mapping[str, Any]],
    left_out: int,
    limit: int,
) -> Iterable[str]:
    folder = files("triptych.audit.page")
    style, script = (
        folder.joinpath(name).read_text(encoding="utf-8") for name in ("review.css", "review.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    content = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Audit of {_text(_name(summary))}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
    )
    yield _head(summary, len(suspects), left_out, limit)
    yield _review(suspects)
    yield f"<noscript>{_table(suspects)}</noscript>\n"
    yield f'<script type="application/json" id="data">{content}</script>\n'
    yield f"<script>{script}</script>\n</body>\n</html>\n"


def _head(summary: Mapping[str, Any], suspects: int, left_out: int, limit: int) -> str:
    wrong = summary["wrong"]
    rows = "".join(
        _row(name, group)
        for groups in (summary["by_category"], summary.get("by_source", {}))
        for name, group in groups.items()
    )
    notes = list(summary["notes"])
    if left_out:
        notes.append(
            f"{left_out:,} pictures are left out, as the page's pictures may take {limit / 2**20:.0f} MB; "
            "the worst suspects have theirs"
        )
    listed = "".join(f"<li>{_text(note)}</li>" for note in notes)
    return (
        f"<header><h1>Audit of {_text(_name(summary))}</h1>\n"
        f"<p>Of {summary['triplets']:,} triplets an estimated <b>{wrong['share']:.1%}</b> are wrong "
        f"({wrong['low']:.1%} to {wrong['high']:.1%}); {summary['flagged']:,} are flagged, "
        f"{suspects:,} are shown here. "
        "A score is the chance that a triplet is right.</p>\n"
        + (f'<ul class="muted">{listed}</ul>' if listed else "")
        + '<div class="scroll"><table><thead><tr><th>category or source</th><th class="number">triplets</th>'
        '<th class="number">flagged</th><th class="number">wrong, estimated</th><th>95 % interval</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div></header>\n"
    )


def _row(name: str, group: Mapping[str, Any]) -> str:
    wrong = group["wrong"]
    return (
        f'<tr><td>{_text(name)}</td><td class="number">{group["triplets"]:,}</td>'
        f'<td class="number">{group["flagged"]:,}</td>'
        f'<td class="number">{wrong["share"]:.1%}</td><td>{wrong["low"]:.1%} to {wrong["high"]:.1%}</td></tr>'
    )


def _review(suspects: Sequence[Mapping[str, Any]]) -> str:
    categories = sorted({suspect["category"] for suspect in suspects})
    rules = sorted({rule for suspect in suspects for rule in suspect["rules"]})
    kinds = [(corner, f"{corner} wrong") for corner in CORNERS] + [(rule, RULES[rule][2]) for rule in rules]
    controls = [
        _select("kind", "Kind", [("", "all"), *kinds]),
        _select("category", "Category", [("", "all"), *((name, name) for name in categories)]),
        _select(
            "state",
            "Decided",
            [("", "all"), ("open", "open"), *((c, c) for c in ("keep", "drop", "fix", "skip"))],
        ),
        '<label>Score up to <input id="score" type="number" min="0" max="1" step="0.05" value="1"></label>',
        _select(
            "sort",
            "Sort",
            [
                ("score", "worst first"),
                ("doubt", "least sure first"),
                ("category", "category"),
                ("id", "order of the data"),
            ],
        ),
        _select("size", "A page", [("10", "10"), ("25", "25"), ("50", "50")]),
        '<button type="button" id="previous">Back</button><span id="where"></span>'
        '<button type="button" id="next">On</button>',
        '<button type="button" id="export">Export decisions.json <kbd>e</kbd></button>',
        '<label>Go on with <input id="import" type="file" accept=".json"></label><span id="decided"></span>',
    ]
    return (
        '<main id="review" hidden>\n<p class="muted">Keys: <kbd>k</kbd> keep, <kbd>d</kbd> drop, <kbd>f</kbd> accept '
        "the selected fix, <kbd>s</kbd> skip, <kbd>u</kbd> undo, <kbd>1</kbd> to <kbd>9</kbd> select a proposal, "
        "arrows move and turn pages, <kbd>e</kbd> export. Decisions stay in this browser.</p>\n"
        f'<div class="bar">{"".join(controls)}</div>\n'
        '<p id="status" class="muted" role="status" aria-live="polite"></p>\n'
        '<div id="list"></div>\n</main>\n'
    )


def _select(name: str, label: str, options: Iterable[tuple[str, str]]) -> str:
    choices = "".join(f'<option value="{_text(value)}">{_text(shown)}</option>' for value, shown in options)
    return f'<label>{_text(label)} <select id="{name}">{choices}</select></label>'


def _table(suspects: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for suspect in suspects[:PLAIN_ROWS]:
        reasons = "; ".join(suspect["reasons"]) or f"{suspect['corner'] or 'something'} probably wrong"
        fix = next(iter(suspect["better"].get(suspect["corner"], [])), "")
        cells = (
            suspect["id"],
            suspect["category"],
            f"{suspect['score']:.3f}",
            reasons,
            suspect["reference"],
            " / ".join(suspect["captions"]),
            suspect["target"] or "",
            " / ".join(fix) if isinstance(fix, list) else fix,
        )
        rows.append("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in cells) + "</tr>")
    heads = ("triplet", "category", "score", "why", "reference", "text", "target", "proposed instead")
    more = len(suspects) - len(rows)
    return (
        "<h2>Suspects, worst first</h2><p>Without JavaScript this page is a plain table"
        + (f"; {more:,} more are in verdicts.parquet" if more > 0 else "")
        + '.</p><div class="scroll"><table><thead><tr>'
        + "".join(f"<th>{head}</th>" for head in heads)
        + f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _name(summary: Mapping[str, Any]) -> str:
    return Path(str(summary.get("data") or "triplets")).name


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)
