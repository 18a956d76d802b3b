"""Runs the library that draws charts, vl-convert, in a child process.

The library contains V8, which reserves about 65 GiB of address space (64.4 GiB measured) and ends its whole process by
SIGTRAP if it cannot, for example on login nodes that limit the address space (`ulimit -v`). In a child process, the
failure becomes a one-line error message.

The child runs this module as a program: it reads one request as JSON from standard input, `{"pictures": [SPEC, …],
"svg": TEXT, "bundle": true}` with any of these keys, and writes the results of the same keys to standard output.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from meshmark import process
from meshmark.errors import MeshmarkError, quoted
from meshmark.values.units import NBSP, size

_SCALE: Final = 2  # pixels of a PNG per unit of its chart
_NEEDED: Final = "about 65 GiB"


class DrawingError(MeshmarkError):
    """Error that charts cannot be drawn. The message is the reason, and the hint says what enables charts."""


def reason_of(error: DrawingError) -> str:
    """Return the message of the error and its hint in one line."""
    return f"{error}; {error.hint}" if error.hint else str(error)


def pictures(specs: Sequence[Mapping[str, Any]]) -> list[tuple[bytes, str]]:
    """Return each Vega-Lite specification as PNG and as SVG.

    Raises:
        DrawingError: Charts cannot be drawn on this machine.
    """
    if not specs:
        return []
    drawn = _converted({"pictures": list(specs)})["pictures"]
    return [(b64decode(png), svg) for png, svg in drawn]


def png_of_svg(svg: str) -> bytes:
    """Return an SVG drawing as PNG.

    Raises:
        DrawingError: The drawing cannot be converted on this machine.
    """
    return b64decode(_converted({"svg": svg})["svg"])


def bundle() -> str:
    """Return vega, vega-lite and vega-embed as one script that sets `window.vegaEmbed`.

    Raises:
        DrawingError: The script cannot be bundled on this machine.
    """
    return str(_converted({"bundle": True})["bundle"])


def _converted(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results that the child writes for this request.

    Raises:
        DrawingError: The child died, or could not be started.
    """
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limits = {resource.RLIMIT_AS: (hard, hard), resource.RLIMIT_CORE: (0, 0)}
    with tempfile.TemporaryFile() as request_file:
        request_file.write(json.dumps(request).encode(errors="replace"))
        request_file.seek(0)
        try:
            child = process.run(
                # -P: a file of the current folder must not replace a module of Python.
                [sys.executable, "-P", "-m", "meshmark.views.charts.vega"],
                process.Preparation(limits=limits),
                stdin=request_file,
            )
        except OSError as error:
            raise DrawingError(f"cannot draw charts: {error.strerror or error}") from None
    if child.returncode == 0:
        results: dict[str, Any] = json.loads(child.stdout)
        return results
    if hard != resource.RLIM_INFINITY:
        limit = size(hard).replace(NBSP, " ")
        raise DrawingError(
            f"cannot draw charts: the address space is limited to {limit} (ulimit -v), and the library that draws "
            f"them reserves {_NEEDED}",
            "repeat this where the address space is not limited, for example in a batch job",
        )
    raise DrawingError(f"cannot draw charts: {_message(child.stderr, child.returncode)}")


def _message(errors: bytes, status: int) -> str:
    """Return how the child ended, followed by its last error message if there is one."""
    lines = [line.strip(" #") for line in errors.decode(errors="replace").splitlines()]
    fatal = [line for line in lines if line.startswith("Fatal")] or [line for line in lines if line]
    return f"the library that draws them ended: {process.status_text(status)}" + (
        f": {quoted(fatal[-1])}" if fatal else ""
    )


def _convert(request: Mapping[str, Any]) -> dict[str, Any]:
    import vl_convert

    results: dict[str, Any] = {}
    if "pictures" in request:
        results["pictures"] = [
            (b64encode(vl_convert.vegalite_to_png(spec, scale=_SCALE)).decode(), vl_convert.vegalite_to_svg(spec))
            for spec in request["pictures"]
        ]
    if "svg" in request:
        results["svg"] = b64encode(vl_convert.svg_to_png(request["svg"], scale=_SCALE)).decode()
    if "bundle" in request:
        # None stands for all three libraries; the stub omits it.
        results["bundle"] = vl_convert.javascript_bundle(None)  # type: ignore[arg-type]
    return results


if __name__ == "__main__":
    json.dump(_convert(json.load(sys.stdin.buffer)), sys.stdout)
