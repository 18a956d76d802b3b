"""URLs and headers of collectors."""

from __future__ import annotations

import pytest

from meshmark.errors import UsageError
from meshmark.web.export.otlp import check_headers, endpoint_of
from support.cli import meshmark, python


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--otlp", "ftp://n1"], "--otlp"),
        (["--otlp", "n1:4318"], "--otlp"),
        (["--otlp", "http://n1:4318", "--on", "gs1280-4"], "--on"),
        (["--otlp", "http://n1", "--interval", "0"], "interval"),
    ],
)
def test_an_invalid_option_is_named_in_the_error(options: list[str], named: str) -> None:
    completed = meshmark("watch", *options)
    assert completed.returncode == 2 and named in completed.stderr and "Traceback" not in completed.stderr


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://n1:4318", "http://n1:4318/v1/metrics"),
        ("https://n1/otlp/", "https://n1/otlp/v1/metrics"),
        ("http://n1:4318/v1/metrics", "http://n1:4318/v1/metrics"),
    ],
)
def test_endpoints_end_in_the_path_of_metrics(url: str, endpoint: str) -> None:
    assert endpoint_of(url) == endpoint


@pytest.mark.parametrize(
    "url",
    ["", "http://", "http://n1:99999", "http://n1:x", "http://n1/?a=b", "http://n 1", "http://[::1", "//n1"],
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="--otlp: found"):
        endpoint_of(url)


def test_a_password_in_the_url_is_refused_and_not_printed() -> None:
    with pytest.raises(UsageError, match="--otlp") as error:
        endpoint_of("http://me:secret@n1:4318")
    assert "secret" not in str(error.value) and "OTEL_EXPORTER_OTLP_HEADERS" in error.value.hint


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"])
def test_an_invalid_header_is_refused_and_not_printed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for valid in ("", "api-key=a%20b, x=1", "authorization=Basic bWU6Mg=="):
        monkeypatch.setenv(name, valid)
        check_headers()
    for invalid in ("secret", "a secret=c", "x=%0d%0asecret", "a=1,secret", "x=secret%e2%82%ac"):
        monkeypatch.setenv(name, invalid)
        with pytest.raises(UsageError, match=name) as error:
            check_headers()
        assert "secret" not in str(error.value)


def test_the_command_does_not_print_an_invalid_header() -> None:
    completed = meshmark("watch", "--otlp", "http://n1:4318", env={"OTEL_EXPORTER_OTLP_HEADERS": "a secret=c"})
    assert (
        completed.returncode == 2
        and "OTEL_EXPORTER_OTLP_HEADERS" in completed.stderr
        and "secret" not in completed.stderr
    )


def test_the_command_line_starts_without_the_libraries_of_servers() -> None:
    heavy = "('opentelemetry', 'google.protobuf', 'httpx', 'starlette')"
    line = f"import sys, meshmark.cli.app; print([m for m in sys.modules if m.startswith({heavy})])"
    completed = python(line)
    assert completed.stdout.strip() == "[]"
