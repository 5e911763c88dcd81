"""A local page asks the questions. It listens on 127.0.0.1 only, and only whoever has its address can use it.

The address holds a random token. Requests without it, requests for another host, and requests that a browser says
another site has caused, are refused: such a page can neither read an image nor send an answer. No request leaves this
machine.
"""

from __future__ import annotations

import gc
import json
import re
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from jinja2 import Environment, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sitar.analysis.ask.pictures import picture
from sitar.analysis.ask.session import Session, keys_of
from sitar.errors import ConfigError, SitarError

HOST = "127.0.0.1"
PAGE = Path(__file__).parent / "page"
HEADER = "x-sitar-token"
MOST_BYTES = 10_000  # of an answer that is sent: a real one has a few dozen
FROM_HERE = ("none", "same-origin")  # Sec-Fetch-Site of an address that a person opened, and of the page's own requests
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self' data:; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def make_app(session: Session, token: str, port: int) -> Starlette:
    """Return the application that serves a session below its token."""
    handlers = _Handlers(session, token)
    routes = [
        Route("/{token}/", handlers.page),
        Route("/{token}/ask.js", handlers.asset),
        Route("/{token}/ask.css", handlers.asset),
        Route("/{token}/next", handlers.next),
        Route("/{token}/image/{image}", handlers.image),
        Route("/{token}/answer", handlers.answer, methods=["POST"]),
        Route("/{token}/undo", handlers.undo, methods=["POST"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(_Guard, token=token, port=port)])


class _Guard:
    """Refuses requests without the token, for another host, or from a page of another site."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{name}:{port}" for name in (HOST, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        request = Request(scope)
        origin, host = request.headers.get("origin"), request.headers.get("host", "")
        is_ours = host in self.hosts and origin in (None, *(f"http://{name}" for name in self.hosts))
        is_ours = is_ours and request.headers.get("sec-fetch-site", "none") in FROM_HERE
        given = [scope["path"].removeprefix("/").partition("/")[0]]
        if request.method not in ("GET", "HEAD"):
            given.append(request.headers.get(HEADER, ""))  # a page of another site cannot set it
        if not is_ours or not all(secrets.compare_digest(one.encode(), self.token.encode()) for one in given):
            await PlainTextResponse("Forbidden", 403, HEADERS)(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(name.lower().encode(), text.encode()) for name, text in HEADERS.items()]
            await send(message)

        await self.app(scope, receive, with_headers)


class _Handlers:
    """Answers the requests of the page. All of them but `image` run one after the other."""

    def __init__(self, session: Session, token: str) -> None:
        self.session = session
        environment = Environment(autoescape=True, undefined=StrictUndefined)
        template = environment.from_string((PAGE / "ask.html").read_text(encoding="utf-8"))
        self.html = template.render(
            choices=list(zip(keys_of(session.pool.classes), session.pool.classes, strict=True)),
            notes=dict.fromkeys(session.choice.notes), token=token, file=str(session.file.path),
        )  # fmt: skip

    async def page(self, request: Request) -> Response:
        return Response(self.html.encode(errors="replace"), media_type="text/html")

    async def asset(self, request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]  # one of the two that have a route
        kind = "text/javascript" if name.endswith(".js") else "text/css"
        return Response((PAGE / name).read_bytes(), media_type=kind)

    async def next(self, request: Request) -> Response:
        return JSONResponse(self._state())

    async def image(self, request: Request) -> Response:
        text = request.path_params["image"]
        image = int(text) if re.fullmatch("[0-9]{1,12}", text) else None
        if image is None or image >= len(self.session.pool):
            return PlainTextResponse("There is no such image.", 404)
        try:
            content = await run_in_threadpool(picture, self.session.pool, image)
        except (OSError, ValueError, SitarError) as error:  # it was removed or changed since it was predicted
            return PlainTextResponse(f"The image cannot be read: {error}", 422)
        return Response(content, media_type="image/png")

    async def answer(self, request: Request) -> Response:
        body = await self._body(request)
        image, label = (body.get("image"), body.get("label")) if isinstance(body, dict) else (None, None)
        is_class = type(label) is int and 0 <= label < len(self.session.pool.classes)
        if type(image) is not int or not (label is None or is_class):
            classes = ", ".join(self.session.pool.classes)
            return self._refused(f"This is no answer. The classes are {classes}.", 400)
        return await self._changed(lambda: self.session.answer(image, label), "This question is answered already.")

    async def undo(self, request: Request) -> Response:
        return await self._changed(self.session.undo, "There is no answer to take back.")

    async def _changed(self, change: Callable[[], bool], otherwise: str) -> Response:
        try:
            return JSONResponse(self._state()) if change() else self._refused(otherwise, 409)
        except OSError as error:
            return self._refused(f"The answer could not be written: {error.strerror or error}. Try again.", 507)

    def _refused(self, reason: str, status: int) -> Response:
        return JSONResponse({**self._state(), "refused": reason}, status)

    @staticmethod
    async def _body(request: Request) -> Any:
        """Return the JSON of a request, or None. What a form of another page can send is not called JSON."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return None
        content = b""
        try:
            async for part in request.stream():
                content += part
                if len(content) > MOST_BYTES:
                    return None
            return json.loads(content)
        except (ValueError, RecursionError, ClientDisconnect):  # no JSON, or only half of it came
            return None

    def _state(self) -> dict[str, Any]:
        session = self.session
        waiting, upcoming, choice = session.question, session.upcoming, session.choice
        return {
            "image": None if waiting is None else waiting.image,
            "name": None if waiting is None else session.pool.names[waiting.image].encode(errors="replace").decode(),
            "upcoming": None if upcoming is None else upcoming.image,
            "answers": choice.answers, "skipped": choice.skipped, "settled": choice.settled, "words": session.words,
        }  # fmt: skip


def open_socket(port: int) -> socket.socket:
    """Listen on a port of this machine alone; 0 takes any that is free."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()  # from now on a browser waits, and is not refused, until the server has started
    except OSError as error:
        listening.close()
        raise ConfigError(f"Port {port} cannot be used: {error.strerror}. Choose another with --port.") from error
    return listening


def keep_what_is_loaded() -> None:
    """Let later garbage collections pass over what is loaded now. With torch they would hold a reply up for long."""
    gc.collect()
    gc.freeze()


def make_server(session: Session, token: str, port: int) -> uvicorn.Server:
    """Return the server. It believes no proxy about who asks, and speaks no WebSocket."""
    config = uvicorn.Config(
        make_app(session, token, port), log_level="warning", access_log=False, server_header=False,
        proxy_headers=False, ws="none", timeout_graceful_shutdown=2,
    )  # fmt: skip
    return uvicorn.Server(config)


def serve(session: Session, port: int, ready: Callable[[str], None]) -> None:
    """Serve a session until Ctrl-C. `ready` is told the address of the page."""
    listening = open_socket(port)
    token, port = secrets.token_urlsafe(24), listening.getsockname()[1]
    server = make_server(session, token, port)
    keep_what_is_loaded()
    with listening, suppress(KeyboardInterrupt):
        ready(f"http://{HOST}:{port}/{token}/")
        server.run(sockets=[listening])
