"""Authenticates requests by a token, and adds security headers to all responses, including errors.

Loopback separates a machine from the network but not its users from each other: any of them can connect to 127.0.0.1.
Therefore a token is required unless it is disabled. It is part of the printed address; a browser that opens it receives
a cookie and is sent to the address without the token. Cookies belong to a host, not to a port, so the name of the
cookie contains the port. Otherwise, two servers on one host, or forwarded to it, would overwrite each other's cookie.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import os
import re
import secrets
import sys
import traceback
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from meshmark.errors import UsageError, quoted
from meshmark.store.files import open_regular
from meshmark.views.render import render

VARIABLE: Final = "MESHMARK_TOKEN"
SECURITY: Final = {
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~-]{1,200}")  # characters that need no escaping in cookies and URLs
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]*)(?::(\d{0,5}))?")


# ------------------------------------------------------------------ names and tokens


def host_name(host: str) -> str:
    """Return a normalized host name: lower case, without brackets and without the trailing dot."""
    return host.strip("[]").lower().removesuffix(".")


def is_loopback(host: str) -> bool:
    """Return whether a name or an address belongs to the loopback interface."""
    name = host_name(host)
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def chosen_token(token: str, file: Path | None, off: bool) -> str:
    """Return the token that requests need: the configured one, or a random one; "" if no token is needed.

    Args:
        token: Option `--token`.
        file: Option `--token-file`.
        off: Option `--no-token`.

    Raises:
        UsageError: More than one option is given, or the token cannot be read or contains other characters.
    """
    options = [name for name, is_given in (("--token", token), ("--token-file", file), ("--no-token", off)) if is_given]
    if len(options) > 1:
        raise UsageError(f"{options[1]}: found with {options[0]}; allowed: one of --token, --token-file, --no-token")
    if off:
        return ""
    if file is not None:
        return token_in(file)
    if token:
        return _allowed(token, "--token")
    variable = os.environ.get(VARIABLE, "")
    return _allowed(variable, VARIABLE) if variable else secrets.token_urlsafe(24)


def _allowed(token: str, source: str) -> str:
    if not _TOKEN.fullmatch(token):  # the message does not quote the token, because it may be logged
        raise UsageError(f"{source}: found an invalid token; allowed: 1 to 200 letters, digits and . _ ~ -")
    return token


def token_in(path: Path, option: str = "--token-file") -> str:
    """Return the token in a file that only its owner can read.

    Args:
        path: The file.
        option: The option that names the file, for messages.

    Raises:
        UsageError: The file cannot be read, is accessible to others, or contains other characters.
    """
    try:
        with open_regular(path) as file:
            status, data = os.fstat(file.fileno()), file.read(1000)
    except (OSError, ValueError) as error:
        raise UsageError(f"{option}: {quoted(path)}: {getattr(error, 'strerror', None) or error}") from error
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise UsageError(
            f"{option}: {quoted(path)}: found mode {status.st_mode & 0o777:o} and owner {status.st_uid}; "
            "the file must belong to you and must not be accessible to others",
            f"chmod 600 {quoted(path)}",
        )
    return _allowed(data.decode("utf-8", "replace").strip(), option)


# ------------------------------------------------------------------ requests


class Guard:
    """Passes only requests with the token and a valid Host header to an application.

    It wraps the whole application, so that an exception becomes a response with the same headers, and one line on
    standard error.

    Args:
        app: The application.
        token: The token; "" to require none and answer only requests addressed to a loopback name.
        posts: Paths that also accept POST requests, with a body that the application limits. A page of another site
            cannot make a browser send them if the application requires a content type that forms do not have. They
            always need a token, because they change what other readers see.
        post_token: The token that such requests need; "" to use `token`.
    """

    def __init__(self, app: ASGIApp, token: str, posts: frozenset[str] = frozenset(), post_token: str = "") -> None:
        self.app, self.token, self.posts = app, token, posts
        self.post_token = post_token or token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request if it may pass, with additional headers in every response."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return
        request = Request(scope)
        started = False

        async def with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = list(message.get("headers", ()))
                names = {k.lower() for k, _ in headers}
                headers += [(k.encode(), v.encode()) for k, v in SECURITY.items() if k.encode() not in names]
                if self.token and _matches(request.query_params.get("token", ""), self.token):
                    cookie = f"{_cookie(request)}={self.token}; HttpOnly; SameSite=Strict; Path=/"
                    headers.append((b"set-cookie", cookie.encode()))
                message = {**message, "headers": headers}
            await send(message)

        try:
            await (self._refusal(request) or self.app)(scope, receive, with_headers)
        except Exception as error:  # a failed request must not end the server
            _log(request, error)
            if not started:
                await failed(request, error)(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """Return the response that refuses a request or forwards to the address without the token; None otherwise."""
        host = request.headers.get("host", "")
        match = _AUTHORITY.fullmatch(host)
        if match is None or int(match[2] or 0) > 65535:
            return _line(f"Host: found '{quoted(host)}', a host name is required", 400)
        if not self.token and not is_loopback(match[1]):
            # This prevents DNS rebinding: a page elsewhere whose name resolves to this address must not read the data.
            return _line("this server answers only requests to localhost", 421)
        is_post = request.method == "POST" and request.scope["path"] in self.posts
        token = self.post_token if is_post else self.token
        if is_post and not token:
            return _line(
                "nodes need a token to send: restart this server without --no-token or with --node-token-file", 403
            )
        if token and not any(_matches(request_token, token) for request_token in _tokens(request)):
            headers = {"www-authenticate": "Bearer"}
            return _line("a token is required: open the address that meshmark printed", 401, headers)
        if is_post:
            return None
        if request.method not in {"GET", "HEAD"}:
            return _line(f"method: found {quoted(request.method)}; allowed: GET and HEAD", 405, {"allow": "GET, HEAD"})
        if request.headers.get("content-length", "0").strip("0") or "transfer-encoding" in request.headers:
            return _line("requests must not have a body", 413)
        is_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        return _without_token(request) if self.token and is_page and "token" in request.query_params else None


def _matches(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def failed(_: Request, __: Exception) -> Response:
    """Return the response to an internal error; the server writes the details to its standard error."""
    return _line("internal error; see the standard error of the server", 500)


def _line(text: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(text + "\n", status, headers)


def _tokens(request: Request) -> list[str]:
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")  # used by monitoring systems
    tokens = [request.query_params.get("token", ""), request.cookies.get(_cookie(request), "")]
    return [*tokens, bearer.strip()] if scheme.lower() == "bearer" else tokens


def _cookie(request: Request) -> str:
    """Return the name of the cookie, with the port in the browser's address, which differs behind a tunnel."""
    match = _AUTHORITY.fullmatch(request.headers.get("host", ""))
    return f"meshmark-{(match and match[2]) or 80}"


def _without_token(request: Request) -> Response:
    """Return a page that forwards to the same address without the token, so that it is not in the browser's history.

    A redirect does not work: after a link from another site (such as a terminal in the browser), browsers send no
    strict cookie along the redirect chain. They send the cookie to addresses that our own page leads to.
    """
    raw = request.scope.get("raw_path") or b"/"
    file_name = raw.rpartition(b"/")[2].decode("latin-1")
    query = "&".join(p for p in request.url.query.split("&") if p.partition("=")[0] != "token")
    page = render("site/forward.html", to=f"./{file_name}" + (f"?{query}" if query else ""))
    return HTMLResponse(str(page), headers={"cache-control": "no-store"})


def _log(request: Request, error: Exception) -> None:
    frames = traceback.extract_tb(error.__traceback__)
    location = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    line = f"meshmark: error: {quoted(request.url.path)}: {type(error).__name__}: {quoted(error)}{location}"
    with contextlib.suppress(OSError, ValueError):  # standard error may be closed
        print(line.encode("utf-8", "backslashreplace").decode(), file=sys.stderr, flush=True)
