"""Reader of kerncraft's machine descriptions (YAML): results of `likwid-bench` on each level, cache sizes, peak rates.

Cache sizes are stated in the file, not measured. kerncraft's `triad` usually has four arrays and is called
`schoenauer` here.
"""

from __future__ import annotations

import re
from typing import Any, Final

from meshmark.errors import extra, quoted
from meshmark.measure.importers.base import FormatError, FormatReader, field, number, size, unexpected
from meshmark.measure.importers.output import ToolOutput
from meshmark.measure.importers.quantities import finite, optional, scaled, string, unit_of, value

# Meshmark's name of a kernel by kerncraft's name and the numbers of read, read and written, and written streams.
_KERNELS: Final = {("load", 1, 0, 0): "read", ("triad", 3, 0, 1): "schoenauer"}
_UNKNOWN: Final = "INFORMATION_REQUIRED"  # placeholder that kerncraft writes where its user must enter a value
_START: Final = re.compile(r"^(?:kerncraft version|FLOPs per cycle):", re.MULTILINE)
_SECTIONS: Final = re.compile(r"^(?:memory hierarchy|benchmarks):", re.MULTILINE)


def recognises(start: str) -> bool:
    """Return whether the start of a file has the sections of a machine description."""
    return _START.search(start) is not None and _SECTIONS.search(start) is not None


def read(output: ToolOutput) -> None:
    """Read bandwidths by level, kernel and number of cores, cache sizes, the clock and operations per cycle."""
    document = _loaded(output.text)
    output.set_source(quoted(document.get("kerncraft version") or "", 40))
    _peaks(output, document)
    benchmarks = document.get("benchmarks")
    names: dict[str, str] = {}
    with output.item("benchmarks"):
        for name, kernel in field(field(document, "benchmarks", dict), "kernels", dict).items():
            with output.item(f"kernels: {quoted(name, 40)}"):
                names[str(name)] = _kernel(str(name), kernel)
    with output.item("memory hierarchy"):
        for index, level in enumerate(field(document, "memory hierarchy", list), 1):
            with output.item(f"memory hierarchy {index}"):
                _level(output, level, benchmarks, names)


def _level(output: ToolOutput, level: Any, benchmarks: Any, kernels: dict[str, str]) -> None:
    """Read the size and the bandwidths of a level."""
    name = string(level, "level")
    with output.item(f"memory hierarchy: {quoted(name, 40)}"):
        if capacity := _capacity(level):
            cores = level.get("cores per group")
            core_count = cores if isinstance(cores, int) and not isinstance(cores, bool) else None
            output.add_tool_metric("cache_size", "B", capacity, level=name, cores_per_group=core_count)
    where = f"measurements: {quoted(name, 40)}"
    with output.item(where):
        blocks = field(field(benchmarks, "measurements", dict), name, dict)
        if not blocks:
            raise FormatError("found none, at least 1 is required")
        for threads_per_core, block in blocks.items():
            place = f"{where}: {quoted(threads_per_core, 20)}"
            with output.item(place):
                _block(output, block, name, threads_per_core, kernels, place)


def _loaded(text: str) -> dict[str, Any]:
    with extra("kerncraft"):
        import yaml  # type: ignore[import-untyped]

    try:
        document = yaml.load(text, Loader=yaml.SafeLoader)  # the C loader overflows the stack on deep nesting
    except yaml.MarkedYAMLError as error:
        place = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise FormatError(f"kerncraft: {place}found no YAML ({quoted(error.problem, 80)})") from None
    except (yaml.YAMLError, ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError, RecursionError):
        raise FormatError("kerncraft: found values, characters or nesting that are not valid YAML") from None
    return dict(field({"kerncraft": document}, "kerncraft", dict))


def _kernel(name: str, description: Any) -> str:
    streams = (field(description, f"{kind} streams", dict) for kind in ("read", "read+write", "write"))
    read_streams, update_streams, write_streams = (field(stream, "streams", int) for stream in streams)
    return _KERNELS.get((name, read_streams, update_streams, write_streams), quoted(name, 40))


def _quantity(quantity: Any, si: str) -> float:
    """Return a value such as `42.98 GB/s` in SI units; prefixes are decimal, as in kerncraft and likwid-bench."""
    match = re.fullmatch(r"([\d.]+(?:[eE][+-]?\d+)?)\s*(\S.*)", str(quantity).strip())
    if match is None or unit_of(match[2]).si != si or not isinstance(quantity, str):
        raise unexpected(quantity, f"a value in {si}")
    return value(match[1], match[2], "value", above_zero=True)


def _peaks(output: ToolOutput, document: dict[str, Any]) -> None:
    """Read the clock and the operations per cycle."""
    if _is_stated(document.get("clock")):
        with output.item("clock"):
            output.add_tool_metric("clock", "Hz", _quantity(document["clock"], "Hz"))
    per_cycle = document.get("FLOPs per cycle")
    for precision, rates in per_cycle.items() if isinstance(per_cycle, dict) else ():
        where = f"FLOPs per cycle: {quoted(precision, 20)}"
        with output.item(where):
            for operation in (name for name, rate in field(per_cycle, precision, dict).items() if _is_stated(rate)):
                with output.item(where):
                    rate = finite(rates, operation)
                    if rate <= 0:
                        raise unexpected(rate, "a number above 0", quoted(operation, 20))
                    kinds = {"precision": quoted(precision, 20), "operation": quoted(operation, 20)}
                    output.add_tool_metric("flops_per_cycle", "1", rate, "higher", **kinds)


def _is_stated(quantity: Any) -> bool:
    return quantity is not None and not (isinstance(quantity, str) and quantity.startswith(_UNKNOWN))


def _capacity(level: dict[str, Any]) -> float | None:
    """Return the size of one cache of a level in bytes, from its sets and ways if stated; None for main memory."""
    geometry = level.get("cache per group")
    keys = ("sets", "ways", "cl_size")
    if isinstance(geometry, dict) and all(_is_stated(geometry.get(key)) for key in keys):
        product = 1.0
        for key in keys:
            text = quoted(field(geometry, key, (int, str)), 400)  # `64 B` in some files
            text = text.removesuffix("B") if key == "cl_size" else text
            product = scaled(product, number(text, key, above_zero=True), key)
        return product
    text = optional(level, "size per group")
    return size(text, "size per group") if text and _is_stated(text) else None


def _block(
    output: ToolOutput, block: Any, level: str, threads_per_core: Any, kernels: dict[str, str], where: str
) -> None:
    """Read the measurements of one level with one number of threads per core."""
    if not isinstance(threads_per_core, int):
        raise FormatError("a number of threads per core is required")
    cores, threads, sizes = (field(block, key, list) for key in ("cores", "threads", "total size"))
    results = field(block, "results", dict)
    for kernel, name in kernels.items():
        place = f"{where}: {quoted(kernel, 40)}"
        with output.item(place):
            rates = field(results, kernel, list)
            if not len(rates) == len(cores) == len(threads) == len(sizes) or not rates:
                raise FormatError(f"found {len(rates)} rates, {len(cores)} are required, one a number of cores")
            for index, rate in enumerate(rates):
                with output.item(place):
                    output.add_meshmark_metric(
                        "bandwidth.bandwidth_net",
                        _quantity(rate, "B/s"),
                        kernel=name,
                        threads=field({"threads": threads[index]}, "threads", int),
                        cores=field({"cores": cores[index]}, "cores", int),
                        footprint_bytes=round(_quantity(sizes[index], "B")),
                        level=level,
                        threads_per_core=threads_per_core,
                    )


READERS: Final = [FormatReader("kerncraft", "kerncraft machine description, YAML", recognises, read, version=2)]
