"""Addresses and headers of collectors."""

from __future__ import annotations

import pytest

from meshmark.errors import UsageError
from meshmark.web.otlp import address_of, headers_of
from support.cli import meshmark, python


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--otlp", "ftp://n1"], "--otlp"),
        (["--otlp", "n1:4318"], "--otlp"),
        (["--otlp", "http://n1:4318", "--on", "gs1280-4"], "--on"),
        (["--otlp", "http://n1", "--interval", "0"], "interval"),
    ],
)
def test_wrong_words_are_one_line(words: list[str], said: str) -> None:
    done = meshmark("watch", *words)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_addresses_and_headers() -> None:
    assert address_of("http://n1:4318") == "http://n1:4318/v1/metrics"
    assert address_of("https://n1/otlp/") == "https://n1/otlp/v1/metrics"
    assert address_of("http://n1:4318/v1/metrics") == "http://n1:4318/v1/metrics"
    for wrong in (
        "",
        "http://",
        "http://n1:99999",
        "http://n1:x",
        "http://n1/?a=b",
        "http://n 1",
        "http://[::1",
        "//n1",
    ):
        with pytest.raises(UsageError, match="--otlp: found"):
            address_of(wrong)
    assert headers_of("api-key=a%20b, x=1") == {"api-key": "a b", "x": "1"}
    for wrong in ("x", "a b=c", "x=%0d%0ay"):
        with pytest.raises(UsageError, match="OTEL_EXPORTER_OTLP_HEADERS"):
            headers_of(wrong)


def test_a_password_in_the_address_is_refused_and_not_told() -> None:
    with pytest.raises(UsageError, match="--otlp") as why:
        address_of("http://me:secret@n1:4318")
    assert "secret" not in str(why.value) and "OTEL_EXPORTER_OTLP_HEADERS" in why.value.hint


def test_the_command_starts_without_it() -> None:
    heavy = "('opentelemetry', 'google.protobuf', 'starlette')"
    line = f"import sys, meshmark.cli.app; print([m for m in sys.modules if m.startswith({heavy})])"
    done = python(line)
    assert done.stdout.strip() == "[]"
