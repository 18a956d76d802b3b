"""Draws charts: Vega-Lite specifications become SVG, and SVG becomes PNG.

Vega and Vega-Lite are JavaScript, which QuickJS executes in this process; resvg draws the PNG. `web/build.mjs` bundles
the library, the font of PNG files and the widths of its characters. docs/decisions/0024-charts.md has the reasons.
"""

from __future__ import annotations

import _thread
import json
import mmap
import re
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from meshmark.errors import MeshmarkError, quoted
from meshmark.native import remedy
from meshmark.values.units import NBSP, size

if TYPE_CHECKING:
    from _quickjs import Context

Result = TypeVar("Result")
STATIC: Final = Path(__file__).parent / "static"
_FAMILY: Final = "Arimo"  # the bundled font
_SCALE: Final = 2  # pixels of a PNG per unit of its chart
_SIZE: Final = re.compile(r'<svg\b[^>]*?\swidth="([\d.]{1,9})"[^>]*?\sheight="([\d.]{1,9})"')
_LIMIT_HINT: Final = "the limit ulimit -v may be too low"
_TEXT: Final = re.compile(r">([^<>]+)<")
# QuickJS raises an exception beyond these limits. A heatmap of 65 280 cells takes 0.3 GB and 5 s.
_MAX_HEAP_BYTES: Final = 4 << 30
_MAX_CPU_S: Final = 600
# An axis whose values are listed in order becomes an expression that is nested once per value: 3 KB of stack for each.
_STACK_BYTES: Final = 16 << 20
_RESERVED_STACK_BYTES: Final = 1 << 20  # for Python and for what QuickJS calls
_MAX_START_S: Final = 20  # time until a new thread runs
_size_lock: Final = _thread.allocate_lock()  # the size of new stacks applies to the whole process


class DrawingError(MeshmarkError):
    """Error that charts cannot be drawn. The message is the reason, and the hint says what enables charts."""


def reason_of(error: DrawingError) -> str:
    """Return the message of the error and its hint in one line."""
    return f"{error}; {error.hint}" if error.hint else str(error)


def pictures(specs: Sequence[Mapping[str, Any]]) -> list[tuple[bytes, str]]:
    """Return each Vega-Lite specification as PNG and as SVG.

    Raises:
        DrawingError: A specification is invalid, or charts cannot be drawn on this machine.
    """
    return [(png_of_svg(svg), svg) for svg in svgs(specs)]


def svgs(specs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return each Vega-Lite specification as SVG.

    Raises:
        DrawingError: A specification is invalid, or charts cannot be drawn on this machine.
    """

    def draw() -> list[str]:
        context = _context()
        return [_svg(context, spec) for spec in specs]

    return _on_large_stack(draw) if specs else []


def png_of_svg(svg: str, scale: float = _SCALE) -> bytes:
    """Return an SVG drawing as PNG.

    Args:
        svg: The drawing. Its texts are drawn in the bundled font if that has all their characters.
        scale: Pixels per unit of the drawing.

    Raises:
        DrawingError: The drawing is invalid, or the machine lacks memory for it.
    """
    with _failures():
        import resvg_py

        text = "".join(_TEXT.findall(svg))
        _require_memory(_bytes_to_draw(svg, len(text), scale))
        return bytes(
            resvg_py.svg_to_bytes(
                svg_string=svg,
                zoom=scale,
                skip_system_fonts=_characters().issuperset(text),
                font_files=[str(STATIC / "regular.ttf"), str(STATIC / "bold.ttf")],
                font_family=_FAMILY,
                serif_family=_FAMILY,
                sans_serif_family=_FAMILY,
                cursive_family=_FAMILY,
                fantasy_family=_FAMILY,
                monospace_family=_FAMILY,
            )
        )


def library() -> str:
    """Return vega, vega-lite and vega-embed as one script that sets `window.vegaEmbed`.

    Raises:
        DrawingError: The script is missing from the installation.
    """
    return _part("charts.js")


def _part(name: str) -> str:
    """Return a file that `web/build.mjs` writes."""
    try:
        return (STATIC / name).read_text(encoding="utf-8")
    except OSError as error:
        raise DrawingError(f"cannot draw charts: cannot read {name}: {error.strerror or error}", remedy()) from None


@cache
def _characters() -> frozenset[str]:
    """Return the characters of the bundled font."""
    return frozenset(json.loads(_part("font.json"))["regular"]) | {"\n", "\r", "\t"}


def _failure(reason: str, for_memory: bool = False) -> DrawingError:
    """Return an error of one line, with a hint if the reason is or may be a lack of memory."""
    line = next(iter(reason.strip().splitlines()), "unknown error")
    if line in {"Invalid error message", "null"}:  # what QuickJS says if it lacks memory even for its message
        line = "out of memory"
    # Where memory is short, a library may give another reason, such as that it cannot parse an expression.
    is_limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    has_hint = for_memory or is_limited or "out of memory" in line
    return DrawingError(f"cannot draw charts: {quoted(line)}", _LIMIT_HINT if has_hint else "")


@contextmanager
def _failures() -> Iterator[None]:
    """Turn exceptions of the libraries into a `DrawingError`."""
    try:
        yield
    except MeshmarkError:
        raise
    except MemoryError:
        raise _failure("out of memory") from None
    except (ImportError, RuntimeError) as error:  # a library or a thread that does not fit into memory
        raise _failure(str(error), for_memory=not isinstance(error, ModuleNotFoundError)) from None
    except Exception as error:
        raise _failure(str(error)) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # what the Python interface of Rust raises for a failed assertion
            raise
        raise _failure(str(error)) from None


def _on_large_stack(function: Callable[[], Result]) -> Result:
    """Return the result of a function that runs in a thread with a stack of `_STACK_BYTES`."""
    results: list[Result] = []
    errors: list[BaseException] = []
    has_begun, has_ended = _thread.allocate_lock(), _thread.allocate_lock()
    begin, end = has_begun.release, has_ended.release

    def run() -> None:
        begin()
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)
        finally:
            end()

    has_begun.acquire()
    has_ended.acquire()
    with _failures():
        with _size_lock:
            former_bytes = _thread.stack_size(_STACK_BYTES)
            try:
                # Unlike this, `Thread.start` waits forever for a thread that lacks memory for its first call.
                _thread.start_new_thread(run, ())
            finally:
                _thread.stack_size(former_bytes)
        if not has_begun.acquire(timeout=_MAX_START_S):
            raise MemoryError
        has_ended.acquire()
        if errors:
            raise errors[0]
        if not results:
            raise MemoryError
        return results[0]


def _context() -> Context:
    """Return an interpreter that has loaded the library."""
    from _quickjs import Context  # the module quickjs contains the same class, and starts a thread when it is imported

    context = Context()
    context.set_memory_limit(_MAX_HEAP_BYTES)
    context.set_max_stack_size(_STACK_BYTES - _RESERVED_STACK_BYTES)
    context.set_time_limit(_MAX_CPU_S)
    context.eval(library())
    context.eval(f"meshmarkCharts.measureBy({_part('font.json')})")
    return context


def _svg(context: Context, spec: Mapping[str, Any]) -> str:
    """Return a specification as SVG."""
    context.get("meshmarkDraw")(_json(spec))
    while context.execute_pending_job():
        pass
    svg, error = (context.eval(f"meshmarkCharts.{name}") for name in ("svg", "error"))
    if error or not svg:  # without memory, both may be missing
        raise _failure(error or "out of memory")
    return str(svg)


def _json(spec: Mapping[str, Any]) -> str:
    """Return a specification as JSON, with null in place of NaN and infinity, which JSON does not have."""
    try:
        return json.dumps(spec, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(spec), parse_constant=lambda _: None))


def _bytes_to_draw(svg: str, characters: int, scale: float) -> int:
    """Return an upper limit of the memory that resvg needs for a drawing whose texts have so many characters.

    The measured need is 4 bytes per pixel of each of up to four layers, 1.7 KB per element, and 2 KB per character,
    because characters become outlines.
    """
    match = _SIZE.search(svg)
    pixels = float(match[1]) * float(match[2]) * scale**2 if match else 0.0
    return int(16 * pixels) + 2 * len(svg) + 2500 * (svg.count("<") + characters) + (32 << 20)


def _require_memory(needed: int) -> None:
    """Raise `DrawingError` if so much memory cannot be allocated: resvg would end the process.

    Args:
        needed: Memory in bytes.
    """
    try:
        mmap.mmap(-1, needed, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, OverflowError):
        amount = size(needed).replace(NBSP, " ")
        raise _failure(f"{amount} of memory are not available", for_memory=True) from None
