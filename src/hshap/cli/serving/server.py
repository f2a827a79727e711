"""The server: the page of a folder in a frame, a place to drop images, and the state of the run."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from hshap._util.version import __version__
from hshap.cli.runs.record import PAGE
from hshap.cli.serving.drops import DropRefusedError, Drops
from hshap.cli.serving.growing import State
from hshap.cli.serving.guard import Guard

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request
    from starlette.types import ASGIApp, Scope

    from hshap.cli.serving.growing import Growing

MOST_WAITING = 100
"""Images that may wait; more are refused until some are explained."""


@dataclass(frozen=True)
class Served:
    """The things that a server shows: the folder of results, and with a model new images too."""

    out: Path
    growing: Growing | None = None
    drops: Drops | None = None
    title: str = "hshap"


class Results(StaticFiles):
    """The files of a folder of results; hidden ones, such as the lock of a run, are not given."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file."""
        if any(part.startswith(".") and part != "." for part in Path(path).parts):
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return await super().get_response(path, scope)


def application(served: Served, *, port: int, token: str) -> ASGIApp:
    """Return the server as an ASGI application, which answers only with the token."""
    own = _Answers(served)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        del app
        if served.growing is not None:
            served.growing.start()
        try:
            yield
        finally:
            if served.growing is not None:
                served.growing.stop()

    app = Starlette(
        routes=[
            Route("/", own.shell),
            Route("/serve.js", own.script),
            Route("/serve.css", own.style),
            Route("/state", own.state),
            Route("/images", own.drop, methods=["POST"]),
            Mount("/page", Results(directory=served.out, html=True, check_dir=False)),
        ],
        lifespan=lifespan,
    )
    return Guard(app, port, token)


class _Answers:
    """The answers of the server, one method for each address."""

    def __init__(self, served: Served) -> None:
        self._served = served

    async def shell(self, request: Request) -> Response:
        del request
        return HTMLResponse(_asset("serve.html"))

    async def script(self, request: Request) -> Response:
        del request
        return Response(_asset("serve.js"), media_type="text/javascript")

    async def style(self, request: Request) -> Response:
        del request
        return Response(_asset("serve.css"), media_type="text/css")

    async def state(self, request: Request) -> Response:
        """Return the state of the run, and a text that changes whenever the page does."""
        del request
        served = self._served
        found = State() if served.growing is None else served.growing.state
        return JSONResponse(
            {
                "hshap": __version__,
                "title": served.title,
                "page": _stamp(served.out / PAGE),
                "takes_images": served.drops is not None,
                **asdict(found),
            }
        )

    async def drop(self, request: Request) -> Response:
        """Store a dropped image, which is explained as soon as it can be."""
        drops, growing = self._served.drops, self._served.growing
        if drops is None or growing is None:
            text = "no model is loaded; start hshap serve with --model to explain new images"
            return PlainTextResponse(text, HTTPStatus.CONFLICT)
        if growing.count_waiting() >= MOST_WAITING:
            text = f"{MOST_WAITING} images wait already; try again later"
            return PlainTextResponse(text, HTTPStatus.TOO_MANY_REQUESTS)
        try:
            path = await drops.store(request.query_params.get("name", ""), request.stream())
        except DropRefusedError as refused:
            return PlainTextResponse(str(refused), refused.status)
        growing.wake()
        return JSONResponse({"name": path.name}, HTTPStatus.CREATED)


def _stamp(page: Path) -> str | None:
    """Return a text that changes when a file does; None if there is no file."""
    try:
        state = page.stat()
    except OSError:
        return None
    return f"{state.st_mtime_ns:x}-{state.st_size:x}"


def _asset(name: str) -> str:
    return files("hshap.cli.serving").joinpath("assets", name).read_text(encoding="utf-8")
