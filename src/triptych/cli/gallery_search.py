"""``triptych search GALLERY``: the query of the command line, and what is shown of the answer."""

from __future__ import annotations

import base64
import json
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from triptych.errors import DataError, UsageError, explain_validation
from triptych.files import atomic_write, write_json

if TYPE_CHECKING:
    from triptych.search.gallery_engine import Answer, GalleryEngine
    from triptych.search.query import Query, Reference
    from triptych.studies.html import Picture


@dataclass(frozen=True)
class Asked:
    """What was typed."""

    images: tuple[str, ...]
    texts: tuple[str, ...]
    minus: tuple[str, ...]
    where: str | None
    top: int
    keep_references: bool


def search_gallery(
    folder: Path,
    asked: Asked,
    *,
    session: Path | None,
    query: Path | None,
    exact: bool | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Search a gallery and show the answer.

    Raises:
        UsageError: nothing is asked, or a name or filter is unknown.
        DataError: the gallery or a picture cannot be used.
    """
    earlier, files = _read_session(session) if session and session.exists() else (None, [])
    wanted = _read_query(query, asked) if query else _typed(asked, earlier, files)
    wanted.check()
    from triptych.search.gallery_engine import GalleryEngine

    engine = GalleryEngine(folder, mode="auto" if exact is None else "exact" if exact else "approximate")
    answer = engine.search(wanted)
    if session:
        write_json(session, {"query": wanted.model_dump(mode="json"), "files": files})
    if html is not None:
        with atomic_write(html) as file:
            file.write(_page(engine, wanted, answer))
    if as_json:
        shown = {"query": wanted.model_dump(mode="json"), **asdict(answer)}
        typer.echo(json.dumps(shown, ensure_ascii=False, indent=2))
        return
    _print(answer, html)


def _typed(asked: Asked, earlier: Query | None, files: list[str]) -> Query:
    """Make the query of the options; with a session it is the next turn."""
    from triptych.search.query import Query, Turn

    images = [_reference(name, files) for name in asked.images]
    values = {
        "images": images,
        "texts": [{"text": text} for text in asked.texts],
        "minus": [{"text": text} for text in asked.minus],
        "top": asked.top,
        "keep_references": asked.keep_references,
        "where": asked.where,
    }
    if earlier is not None:
        said = Turn(images=earlier.images, texts=earlier.texts, minus=earlier.minus)
        values["before"] = [*earlier.before, said][-16:]
        values["where"] = asked.where if asked.where is not None else earlier.where
    elif not asked.images and not any(text.strip() for text in asked.texts):
        raise UsageError("say what to search for: --image ID_OR_FILE, --text TEXT, or both")
    return explain_validation(Query, values, "the search")


def _reference(name: str, files: list[str]) -> Reference:
    """Take a file where there is one, else an id."""
    from triptych.search.query import Reference

    if not Path(name).is_file():
        return explain_validation(Reference, {"id": name}, "--image")
    path = str(Path(name).resolve())
    if path not in files:
        files.append(path)
    return Reference.file(name).model_copy(update={"upload": files.index(path)})


def _read_query(path: Path, asked: Asked) -> Query:
    from triptych.search.query import Query

    if asked.images or asked.texts or asked.minus or asked.where is not None:
        raise UsageError("--query is a whole query: leave out --image, --text, --minus and --where")
    return explain_validation(Query, _json(path), str(path))


def _read_session(path: Path) -> tuple[Query, list[str]]:
    """Read the turns of a search; the files it names are read again."""
    from triptych.search.query import Query, Reference, Turn

    found = _json(path)
    files = found.get("files")
    if not isinstance(found.get("query"), dict) or not isinstance(files, list):
        raise DataError(
            "this is no session of a search", file=path, mend="Delete it, or choose another name."
        )
    query = explain_validation(Query, found["query"], str(path))

    def filled(image: Reference) -> Reference:
        if image.upload is None:
            return image
        if image.upload >= len(files):
            raise DataError(f"it names file {image.upload}, which it does not list", file=path)
        given = Reference.file(str(files[image.upload])).picture
        return image.model_copy(update={"picture": given})

    def turn(one: Turn) -> Turn:
        return Turn(images=tuple(map(filled, one.images)), texts=one.texts, minus=one.minus)

    images, before = tuple(map(filled, query.images)), tuple(map(turn, query.before))
    return query.model_copy(update={"images": images, "before": before}), [str(name) for name in files]


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"is not valid JSON ({error})", file=path) from error
    if not isinstance(found, dict):
        raise DataError("a JSON object is expected", file=path)
    return found


def _print(answer: Answer, html: Path | None) -> None:
    columns = sorted(
        {name for hit in answer.hits for name, value in hit.metadata.items() if value is not None}
    )[:6]
    table = Table("", "image", "score", "vector", *map(escape, columns), "file", box=box.SIMPLE_HEAD)
    for hit in answer.hits:
        values = [
            escape(str(hit.metadata[name] if hit.metadata[name] is not None else "")) for name in columns
        ]
        table.add_row(
            str(hit.rank),
            escape(hit.image_id),
            f"{hit.score:.3f}",
            str(hit.vector),
            *values,
            escape(hit.source),
        )
    console = Console(highlight=False)
    console.print(table)
    for name, value in _details(answer):
        console.print(f"{name}: {escape(value)}", soft_wrap=True)
    if html is not None:
        console.print(f"Pictures: {escape(str(html))}", soft_wrap=True)


def _details(answer: Answer) -> list[tuple[str, str]]:
    how = "exact scan" if answer.method == "exact" else "approximate: exact scores of the nearest candidates"
    return [
        ("model", f"{answer.model} ({answer.fingerprint[:12]})"),
        ("gallery", f"{answer.images:,} images, version {answer.version}"),
        ("search", f"{how}; {answer.scored:,} images scored in {answer.milliseconds:.0f} ms"),
    ]


def _page(engine: GalleryEngine, query: Query, answer: Answer) -> str:
    from triptych.studies.html import HitView, QueryView, search_page

    reference = query.images[0] if query.images else None
    ids = [hit.image_id for hit in answer.hits]
    if reference is not None and reference.id is not None:
        ids.append(reference.id)
    found = engine.thumbnails(list(dict.fromkeys(ids)))
    minus = "".join(f" (not {text.text})" for text in query.minus)
    said = [" and ".join(text.text for text in turn.texts) for turn in query.turns]
    return search_page(
        QueryView(
            None if reference is None else _shown(reference, found), " → ".join(filter(None, said)) + minus
        ),
        [HitView(_picture(hit.image_id, found), hit.score) for hit in answer.hits],
        details=_details(answer) + ([("filter", query.where)] if query.where else []),
        command=shlex.join(["triptych", *sys.argv[1:]]),
    )


def _shown(reference: Reference, thumbnails: dict[str, bytes]) -> Picture:
    from triptych.studies.html import Picture
    from triptych.triplets.decoding import decode_image
    from triptych.triplets.thumbnail import thumbnail_data_uri

    if reference.picture is None:
        return _picture(str(reference.id), thumbnails)
    image = decode_image(reference.picture.data, reference.picture.name)
    return Picture(Path(reference.picture.name).name, thumbnail_data_uri(image))


def _picture(image_id: str, thumbnails: dict[str, bytes]) -> Picture:
    from triptych.studies.html import Picture

    data = thumbnails.get(image_id)
    uri = "data:image/jpeg;base64," + base64.b64encode(data).decode("ascii") if data else None
    return Picture(image_id, uri)
