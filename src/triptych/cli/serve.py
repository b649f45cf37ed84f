"""``triptych serve``: answer searches of a gallery over HTTP."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from triptych.errors import TriptychError, UsageError

if TYPE_CHECKING:
    from triptych.server.settings import ServerSettings

app = typer.Typer(rich_markup_mode="markdown", add_completion=False)

_NEEDED = ("fastapi", "uvicorn", "multipart", "prometheus_client")


@app.command()
def serve(
    gallery: Annotated[
        Path, typer.Argument(metavar="GALLERY", help="The gallery's folder.", show_default=False)
    ],
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Who sends the token in this file may add and remove images; without it nobody may.",
            show_default=False,
        ),
    ] = None,
    upload_mb: Annotated[float, typer.Option(min=0.01, help="Largest picture and request, in MiB.")] = 20,
    megapixels: Annotated[float, typer.Option(min=0.0001, help="Largest picture, in megapixels.")] = 40,
    in_flight: Annotated[int, typer.Option(min=1, help="Requests at once; more are answered 429.")] = 64,
    deadline: Annotated[float, typer.Option(min=0.01, help="Seconds for a request.")] = 10,
    batch: Annotated[int, typer.Option(min=1, help="Queries embedded together, at most.")] = 32,
) -> None:
    """Answer searches of a gallery over HTTP, and show a page to search it in a browser.

    `POST /v1/search` takes JSON with image ids or a form with files, and says which model and which version of the
    gallery answered; `/openapi.json` describes everything. Requests hold ids and bytes: the server opens no path
    and fetches no URL that a request names. It knows no TLS: put a proxy in front of it on an open network.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise TriptychError(
            f'`triptych serve` needs {", ".join(missing)}.\n  Run: pip install "triptych[search,serve]"'
        )
    token = _token(token_file) if token_file else None
    settings = _settings(upload_mb, megapixels, in_flight, deadline, batch, token)
    import uvicorn

    from triptych.server.app import create_app

    application = create_app(gallery, settings)
    state = application.state.service
    console = Console(stderr=True, highlight=False)
    console.print(
        f"{state.gallery.images:,} images, version {state.gallery.version}, model {state.model.name};"
        f" {'writing with the token' if token else 'read only'}.",
        markup=False,
        soft_wrap=True,
    )
    if port:  # of a free one uvicorn tells the number
        where = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        console.print(f"Open http://{where}:{port}/ in a browser.", markup=False, soft_wrap=True)
    config = uvicorn.Config(application, host=host, port=port, log_level="info", server_header=False)
    uvicorn.Server(config).run()


def _settings(
    upload_mb: float, megapixels: float, in_flight: int, deadline: float, batch: int, token: str | None
) -> ServerSettings:
    from pydantic import SecretStr

    from triptych.server.settings import ServerSettings

    return ServerSettings(
        upload_bytes=int(upload_mb * 2**20),
        pixels=int(megapixels * 1e6),
        in_flight=in_flight,
        deadline=deadline,
        batch=batch,
        token=SecretStr(token) if token else None,
    )


def _token(path: Path) -> str:
    """Read the token: the file's only line.

    Raises:
        UsageError: there is no such file, or it holds no token of 16 characters or more.
    """
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    token = path.read_text(encoding="utf-8").strip()
    if len(token) < 16 or any(sign.isspace() for sign in token):
        raise UsageError(
            f"{path}: a token is one word of 16 characters or more.\n"
            '  Make one: python -c "import secrets; print(secrets.token_urlsafe())"'
        )
    return token
