"""Settings and errors of requests with httpx, to collectors and for the maps of nodes.

A request may contain a token, so it goes only to the host that it names: redirects are not followed, and nodes are not
reached through a proxy. Answers are not decompressed, so that none is larger in memory than on the network. Import this
module only when a request is due, because httpx takes 0.1 s; `export/pull.py` polls nodes without it.
"""

from __future__ import annotations

import ssl
from typing import Final

import httpx

from meshmark.errors import quoted

HEADERS: Final = {"accept-encoding": "identity", "connection": "close"}  # a host may drop an idle connection
NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # for plain HTTP: trusts no certificate, and reads none
FAILURES: Final = (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError)  # a name of a host may not be encodable


def reason_of(error: BaseException) -> str:
    """Return the message of the operating system or of HTTP, without the messages of the libraries that wrap it."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return quoted(getattr(error, "strerror", None) or str(error) or type(error).__name__, 200)
