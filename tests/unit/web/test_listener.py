"""Limits of request bodies: a body in chunks of few bytes would keep the server busy for half a minute."""

from __future__ import annotations

import h11
import pytest

from meshmark.web.listener import MAX_HEADER, MAX_SMALL_PARTS, SMALL_PART, BoundedParser

HEAD = b"POST /v1/metrics HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"


def bytes_of_body(data: bytes) -> int:
    """Return how many bytes of a body are accepted."""
    parser = BoundedParser(h11.SERVER, MAX_HEADER)
    parser.receive_data(data)
    count = 0
    while (event := parser.next_event()) is not h11.NEED_DATA:
        if isinstance(event, h11.Data):
            count += len(event.data)
        elif isinstance(event, h11.EndOfMessage):
            break
    return count


def part(size: int) -> bytes:
    return f"{size:x}\r\n".encode() + b"x" * size + b"\r\n"


def test_a_body_in_very_small_parts_is_refused() -> None:
    assert bytes_of_body(HEAD + part(1) * MAX_SMALL_PARTS + b"0\r\n\r\n") == MAX_SMALL_PARTS
    for size in (1, SMALL_PART - 1):
        with pytest.raises(h11.RemoteProtocolError, match="too small"):
            bytes_of_body(HEAD + part(size) * (MAX_SMALL_PARTS + 1))


def test_a_body_in_usual_parts_is_accepted() -> None:
    parts = 2 * MAX_SMALL_PARTS
    assert bytes_of_body(HEAD + part(SMALL_PART) * parts + b"0\r\n\r\n") == SMALL_PART * parts
    assert bytes_of_body(HEAD + part(1 << 18) + part(1) * parts + b"0\r\n\r\n") == (1 << 18) + parts
