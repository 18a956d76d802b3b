"""kerncraft's machine description (YAML): what `likwid-bench` measured on each level, sizes of caches and peak rates.

Sizes of caches are those that the file states rather than capacities that someone measured. kerncraft's `triad` usually
has four arrays and is called `schoenauer` here.
"""

from __future__ import annotations

import re
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, field, number, ours, size, theirs
from meshmark.measure.tools.output import ToolOutput
from meshmark.measure.tools.quantities import finite, held, optional, scaled, string, unit_of

_TOOL: Final = "kerncraft"
# Names of ours by kerncraft's name and its streams that are read, read and written, and written.
_KERNELS: Final = {("load", 1, 0, 0): "read", ("triad", 3, 0, 1): "schoenauer"}
_UNKNOWN: Final = "INFORMATION_REQUIRED"  # what kerncraft writes where its user must fill something in
_START: Final = re.compile(r"^(?:kerncraft version|FLOPs per cycle):", re.MULTILINE)
_SECTIONS: Final = re.compile(r"^(?:memory hierarchy|benchmarks):", re.MULTILINE)


def recognises(start: str) -> bool:
    return _START.search(start) is not None and _SECTIONS.search(start) is not None


def read(output: ToolOutput) -> None:
    """Bandwidths of each level, kernel and number of cores; sizes of caches; clock and operations per cycle."""
    document = _loaded(output.text)
    about = About(output.machine, "kerncraft", quoted(document.get("kerncraft version") or "", 40))
    _peaks(output, document, about)
    benchmarks = document.get("benchmarks")
    names: dict[str, str] = {}
    with output.item("benchmarks"):
        for name, kernel in field(field(document, "benchmarks", dict, ""), "kernels", dict, "").items():
            with output.item(f"kernels: {quoted(name, 40)}"):
                names[str(name)] = _kernel(str(name), kernel)
    with output.item("memory hierarchy"):
        for at, level in enumerate(field(document, "memory hierarchy", list, ""), 1):
            with output.item(f"memory hierarchy {at}"):
                _level(output, level, benchmarks, names, about)


def _level(output: ToolOutput, level: Any, benchmarks: Any, kernels: dict[str, str], about: About) -> None:
    """The size of a level, and its bandwidths."""
    name = string(level, "level", "")
    with output.item(f"memory hierarchy: {quoted(name, 40)}"):
        _cache(output, level, name, about)
    where = f"measurements: {quoted(name, 40)}"
    with output.item(where):
        of_level = held(field(benchmarks, "measurements", dict, ""), name, dict, "")
        if not of_level:
            raise FormatError("found none, at least 1 is required")
        for threads_per_core, block in of_level.items():
            with output.item(f"{where}: {quoted(threads_per_core, 20)}"):
                _block(output, block, name, threads_per_core, kernels, about)


def _loaded(text: str) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    try:
        found = yaml.load(text, Loader=yaml.SafeLoader)  # the C loader overflows the stack on deep nesting
    except yaml.MarkedYAMLError as error:
        at = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise FormatError(f"{_TOOL}: {at}found no YAML ({quoted(error.problem, 80)})") from None
    except (yaml.YAMLError, ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError, RecursionError):
        raise FormatError(f"{_TOOL}: found values, characters or nesting that are no YAML") from None
    if not isinstance(found, dict):
        raise FormatError(f"{_TOOL}: found {type(found).__name__}, a mapping is required")
    return found


def _kernel(name: str, description: Any) -> str:
    streams = [field(description, f"{kind} streams", dict, "") for kind in ("read", "read+write", "write")]
    read_, both, write = (field(s, "streams", int, "") for s in streams)
    return _KERNELS.get((name, read_, both, write), quoted(name, 40))


def _quantity(value: Any, si: str) -> float:
    """A value such as `42.98 GB/s`; prefixes are decimal, as kerncraft and likwid-bench mean them."""
    match = re.fullmatch(r"([\d.]+(?:[eE][+-]?\d+)?)\s*(\S.*)", value.strip()) if isinstance(value, str) else None
    unit = unit_of(match[2]) if match else None
    if match is None or unit is None or unit.si != si:
        raise FormatError(f"found '{quoted(value, 40)}', a value in {si} is required")
    return scaled(number(match[1], "value", above_zero=True), unit.factor, "value")


def _peaks(output: ToolOutput, document: dict[str, Any], about: About) -> None:
    """The clock, and the operations per cycle."""
    if _is_stated(document.get("clock")):
        with output.item("clock"):
            output.add(theirs(about, "clock", "Hz", "none", [_quantity(document["clock"], "Hz")]))
    per_cycle = document.get("FLOPs per cycle")
    for precision, rates in per_cycle.items() if isinstance(per_cycle, dict) else ():
        where = f"FLOPs per cycle: {quoted(precision, 20)}"
        with output.item(where):
            if not isinstance(rates, dict):
                raise FormatError(f"found {quoted(rates, 40)}, rates by operation are required")
            for operation, rate in rates.items():
                if _is_stated(rate):
                    with output.item(where):
                        value = finite(rates, operation, "")
                        if value <= 0:
                            raise FormatError(f"{quoted(operation, 20)}: found {value}, a number above 0 is required")
                        kinds = {"precision": quoted(precision, 20), "operation": quoted(operation, 20)}
                        output.add(theirs(about, "flops_per_cycle", "1", "higher", [value], **kinds))


def _is_stated(value: Any) -> bool:
    return value is not None and not (isinstance(value, str) and value.startswith(_UNKNOWN))


def _cache(output: ToolOutput, level: dict[str, Any], name: str, about: About) -> None:
    """Add the stated size of one cache of a level, by its sets and ways if they are stated; none of main memory."""
    cores = level.get("cores per group")
    shared = cores if isinstance(cores, int) and not isinstance(cores, bool) else None
    geometry = level.get("cache per group")
    keys = ("sets", "ways", "cl_size")
    if isinstance(geometry, dict) and all(_is_stated(geometry.get(key)) for key in keys):
        product = 1.0
        for key in keys:
            stated = field(geometry, key, (int, str), "")  # `64 B` in some files
            text = quoted(stated, 400).removesuffix("B") if key == "cl_size" else quoted(stated, 400)
            product = scaled(product, number(text, key, above_zero=True), key)
        output.add(theirs(about, "cache_size", "B", "none", [product], level=name, cores_per_group=shared))
    elif (text := optional(level, "size per group")) and _is_stated(text):
        capacity = size(text, "size per group")
        output.add(theirs(about, "cache_size", "B", "none", [capacity], level=name, cores_per_group=shared))


def _block(
    output: ToolOutput, block: Any, level: str, threads_per_core: Any, kernels: dict[str, str], about: About
) -> None:
    """The measurements of one level with one number of threads a core."""
    where = f"measurements: {quoted(level, 40)}: {quoted(threads_per_core, 20)}"
    if not isinstance(threads_per_core, int):
        raise FormatError("a number of threads per core is required")
    cores, threads = (field(block, key, list, "") for key in ("cores", "threads"))
    sizes = field(block, "total size", list, "")
    results = field(block, "results", dict, "")
    for kernel, name in kernels.items():
        at = f"{where}: {quoted(kernel, 40)}"
        with output.item(at):
            rates = held(results, kernel, list, "")
            if not len(rates) == len(cores) == len(threads) == len(sizes) or not rates:
                raise FormatError(f"found {len(rates)} rates, {len(cores)} are required, one a number of cores")
            for i, rate in enumerate(rates):
                with output.item(at):
                    output.add(
                        ours(
                            about,
                            "bandwidth",
                            "bandwidth_net",
                            [_quantity(rate, "B/s")],
                            kernel=name,
                            threads=field({"threads": threads[i]}, "threads", int, ""),
                            cores=field({"cores": cores[i]}, "cores", int, ""),
                            footprint_bytes=round(_quantity(sizes[i], "B")),
                            level=level,
                            threads_per_core=threads_per_core,
                        )
                    )


READERS: Final = [Reader("kerncraft", "kerncraft machine description, YAML", recognises, read, version=2)]
