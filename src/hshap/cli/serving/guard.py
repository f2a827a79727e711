"""The guard of the server: it answers only a browser on this machine that has the token.

A page of a stranger, open in the same browser, can send requests to a local address. So a request
needs the token, which the address that the command prints gives to the browser as a cookie. The
name of the host is checked, since a stranger's name may lead to this machine. A request that
changes something must come from a page of this server. Only HTTP is answered at all.
"""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HARMLESS = ("GET", "HEAD")
POLICY = 1008
"""The code of a websocket that is closed since it breaks a rule of the server."""

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "frame-ancestors 'self'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
}


class Guard:
    """Passes requests on to an application if they are allowed."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self._app, self._token = app, token
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        # Cookies of one host are shared by all of its ports.
        self._cookie = f"hshap-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on; connections of other kinds are closed or refused."""
        if scope["type"] == "lifespan":  # of the server itself: it starts and stops
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await receive()  # the request to connect
            await send({"type": "websocket.close", "code": POLICY, "reason": "not supported"})
            return
        if scope["type"] != "http":
            raise RuntimeError(f"connections of the kind {scope['type']!r} are refused")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), text.encode()) for name, text in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        answer = self._answer(scope)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _answer(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is not passed on; None if it is."""
        headers = Headers(scope=scope)
        if headers.get("host") not in self._hosts:
            text = f"this server answers to http://{self._hosts[0]} alone"
            return PlainTextResponse(text, HTTPStatus.MISDIRECTED_REQUEST)
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["method"] == "GET" and scope["path"] == "/" and self._is_token(given):
            entered = RedirectResponse("/", HTTPStatus.SEE_OTHER)
            entered.set_cookie(self._cookie, self._token, httponly=True, samesite="lax")
            return entered
        if not self._has_token(headers):
            text = "the token is missing; open the address that hshap serve printed"
            return PlainTextResponse(text, HTTPStatus.FORBIDDEN)
        if scope["method"] not in HARMLESS and not self._is_own(headers):
            text = "requests from pages of others are refused"
            return PlainTextResponse(text, HTTPStatus.FORBIDDEN)
        return None

    def _has_token(self, headers: Headers) -> bool:
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        return self._is_token(cookie) or (kind.lower() == "bearer" and self._is_token(bearer))

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())

    def _is_own(self, headers: Headers) -> bool:
        """Tell whether a request comes from a page of this server, or from no page at all."""
        origin = headers.get("origin")
        return origin is None or origin in {f"http://{host}" for host in self._hosts}
