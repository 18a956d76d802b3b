"""Who is let in, and what every answer carries, those of errors included.

Loopback separates a machine from its network, not its users from each other: any of them can open a port of 127.0.0.1.
So a token is needed unless it was switched off. It comes in the address that is printed; a browser then gets a cookie
for it and an address without it. A cookie is for a host and not for a port, so its name has the port in it: two
servers of one host, or two that are forwarded to it, do not take each other's away.
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
from meshmark.report.render import render
from meshmark.store.files import open_regular

VARIABLE: Final = "MESHMARK_TOKEN"
SECURITY: Final = {
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~-]{1,200}")  # what a cookie and an address can hold as it is
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]*)(?::(\d{0,5}))?")


# ------------------------------------------------------------------ names and tokens


def host_name(host: str) -> str:
    """A host as it is compared: without brackets and the dot of a full name, in small letters."""
    return host.strip("[]").lower().removesuffix(".")


def is_loopback(host: str) -> bool:
    """Whether a name or an address means this host, reached from itself alone."""
    name = host_name(host)
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def chosen_token(token: str, file: Path | None, off: bool) -> str:
    """The token that requests need: one that was given, or a random one; empty where it is switched off.

    Args:
        token, file, off: the options `--token`, `--token-file` and `--no-token`.

    Raises:
        UsageError: two of them are given, or the token cannot be read or be in an address.
    """
    asked = [name for name, is_asked in (("--token", token), ("--token-file", file), ("--no-token", off)) if is_asked]
    if len(asked) > 1:
        raise UsageError(f"{asked[1]}: found with {asked[0]}, allowed is one of --token, --token-file, --no-token")
    if off:
        return ""
    if file is not None:
        return _allowed(_token_in(file), "--token-file")
    if token:
        return _allowed(token, "--token")
    given = os.environ.get(VARIABLE, "")
    return _allowed(given, VARIABLE) if given else secrets.token_urlsafe(24)


def _allowed(token: str, source: str) -> str:
    if not _TOKEN.fullmatch(token):  # which is not quoted: others may read this line
        raise UsageError(f"{source}: found no token, allowed are letters, digits and . _ ~ - (1 to 200 of them)")
    return token


def _token_in(path: Path) -> str:
    try:
        with open_regular(path) as file:
            about, data = os.fstat(file.fileno()), file.read(1000)
    except (OSError, ValueError) as why:
        raise UsageError(f"--token-file: {quoted(path)}: {getattr(why, 'strerror', None) or why}") from why
    if about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise UsageError(
            f"--token-file: {quoted(path)}: found mode {about.st_mode & 0o777:o} and owner {about.st_uid}; "
            "needed is a file that its owner, who is you, can read alone",
            f"chmod 600 {quoted(path)}",
        )
    return data.decode("utf-8", "replace").strip()


# ------------------------------------------------------------------ requests


class Guard:
    """Lets in who has the token, and only requests that name a host this server answers to.

    It is the outermost part of an application, so that what fails inside becomes an answer with the same headers, and
    one line on standard error.

    Args:
        token: empty: none is needed, and only requests to this host by a name of its own are answered.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
                own = {k.lower() for k, _ in headers}
                headers += [(k.encode(), v.encode()) for k, v in SECURITY.items() if k.encode() not in own]
                if self.token and self._is_it(request.query_params.get("token", "")):
                    cookie = f"{_cookie(request)}={self.token}; HttpOnly; SameSite=Strict; Path=/"
                    headers.append((b"set-cookie", cookie.encode()))
                message = {**message, "headers": headers}
            await send(message)

        try:
            await (self._refusal(request) or self.app)(scope, receive, with_headers)
        except Exception as why:  # whatever it is: the server goes on for others
            _log(request, why)
            if not started:
                await failed(request, why)(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """The answer to one who is not let in, or who is sent on to an address without the token."""
        host = request.headers.get("host", "")
        said = _AUTHORITY.fullmatch(host)
        if said is None or int(said[2] or 0) > 65535:
            return _line(f"Host: found '{quoted(host)}', the name of a host is needed", 400)
        if not self.token and not is_loopback(said[1]):
            # A page elsewhere whose name was bent to this address must not read the machine.
            return _line("this server answers to localhost alone", 421)
        if self.token and not any(map(self._is_it, _tokens(request))):
            needed = {"www-authenticate": "Bearer"}
            return _line("a token is needed: open the address that meshmark printed", 401, needed)
        if request.method not in {"GET", "HEAD"}:
            return _line(f"{quoted(request.method)}: allowed are GET and HEAD", 405, {"allow": "GET, HEAD"})
        if request.headers.get("content-length", "0").strip("0") or "transfer-encoding" in request.headers:
            return _line("a request without a body is needed", 413)
        opened = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        return _sent_on(request) if self.token and opened and "token" in request.query_params else None

    def _is_it(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())


def failed(_: Request, __: Exception) -> Response:
    """The answer where Meshmark itself is wrong: what happened is for whoever runs the server."""
    return _line("this could not be made; the standard error of the server says why", 500)


def _line(text: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(text + "\n", status, headers)


def _tokens(request: Request) -> list[str]:
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")  # monitoring systems send it so
    given = [request.query_params.get("token", ""), request.cookies.get(_cookie(request), "")]
    return [*given, bearer.strip()] if scheme.lower() == "bearer" else given


def _cookie(request: Request) -> str:
    """Its name: with the port by which the browser reaches us, which a tunnel may have changed."""
    said = _AUTHORITY.fullmatch(request.headers.get("host", ""))
    return f"meshmark-{(said and said[2]) or 80}"


def _sent_on(request: Request) -> Response:
    """To the same address without the token, which then stays neither in the bar nor in the history.

    Not by a redirect: where a link of another site was followed (a terminal in the browser, say), browsers send a
    strict cookie to no address of the chain, but they do so to what our own page leads to.
    """
    raw = request.scope.get("raw_path") or b"/"
    last = raw.rpartition(b"/")[2].decode("latin-1")
    rest = "&".join(p for p in request.url.query.split("&") if p.partition("=")[0] != "token")
    page = render("site/forward.html", to=f"./{last}" + (f"?{rest}" if rest else ""))
    return HTMLResponse(str(page), headers={"cache-control": "no-store"})


def _log(request: Request, why: Exception) -> None:
    at = traceback.extract_tb(why.__traceback__)
    where = f" ({Path(at[-1].filename).name}:{at[-1].lineno})" if at else ""
    line = f"meshmark: error: {quoted(request.url.path)}: {type(why).__name__}: {quoted(why)}{where}"
    with contextlib.suppress(OSError, ValueError):  # nobody may be there to read it
        print(line.encode("utf-8", "backslashreplace").decode(), file=sys.stderr, flush=True)
