"""kerncraft's machine description (YAML): what `likwid-bench` measured on each level, sizes of caches and peak rates.

Sizes of caches are those that the file states rather than capacities that someone measured. kerncraft's `triad` usually
has four arrays and is called `schoenauer` here.
"""

from __future__ import annotations

import re
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, field, number, ours, size, theirs
from meshmark.measure.tools.output import whole
from meshmark.measure.tools.quantities import finite, held, optional, scaled, string, unit_of
from meshmark.store.record import Record

_TOOL: Final = "kerncraft"
# Names of ours by kerncraft's name and its streams that are read, read and written, and written.
_KERNELS: Final = {("load", 1, 0, 0): "read", ("triad", 3, 0, 1): "schoenauer"}
_UNKNOWN: Final = "INFORMATION_REQUIRED"  # what kerncraft writes where its user must fill something in
_START: Final = re.compile(r"^(?:kerncraft version|FLOPs per cycle):", re.MULTILINE)
_SECTIONS: Final = re.compile(r"^(?:memory hierarchy|benchmarks):", re.MULTILINE)


def recognises(start: str) -> bool:
    return _START.search(start) is not None and _SECTIONS.search(start) is not None


def read(text: str, machine: str) -> list[Record]:
    """Bandwidths of each level, kernel and number of cores; sizes of caches; clock and operations per cycle."""
    found = _loaded(text)
    about = About(machine, "kerncraft", quoted(found.get("kerncraft version") or "", 40))
    levels = field(found, "memory hierarchy", list, _TOOL)
    benchmarks = field(found, "benchmarks", dict, _TOOL)
    kernels = field(benchmarks, "kernels", dict, f"{_TOOL}: benchmarks")
    measurements = field(benchmarks, "measurements", dict, f"{_TOOL}: benchmarks")
    names = {str(name): _kernel(str(name), kernel) for name, kernel in kernels.items()}
    made = _peaks(found, about)
    if not levels or not kernels:
        raise FormatError(f"{_TOOL}: found no levels or no kernels, at least 1 is required")
    for at, level in enumerate(levels, 1):
        name = string(level, "level", f"{_TOOL}: memory hierarchy {at}")
        made += _cache(level, name, about)
        of_level = held(measurements, name, dict, f"{_TOOL}: measurements")
        if not of_level:
            raise FormatError(f"{_TOOL}: measurements: {quoted(name, 40)}: found none, at least 1 is required")
        for threads_per_core, block in of_level.items():
            made += _block(block, name, threads_per_core, names, about)
    return made


def _loaded(text: str) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    try:
        found = yaml.load(text, Loader=yaml.SafeLoader)  # the C loader overflows the stack on deep nesting
    except yaml.MarkedYAMLError as why:
        at = f"line {why.problem_mark.line + 1}: " if why.problem_mark else ""
        raise FormatError(f"{_TOOL}: {at}found no YAML ({quoted(why.problem, 80)})") from None
    except (yaml.YAMLError, ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError, RecursionError):
        raise FormatError(f"{_TOOL}: found values, characters or nesting that are no YAML") from None
    if not isinstance(found, dict):
        raise FormatError(f"{_TOOL}: found {type(found).__name__}, a mapping is required")
    return found


def _kernel(name: str, description: Any) -> str:
    where = f"{_TOOL}: kernels: {quoted(name, 40)}"
    streams = [field(description, f"{kind} streams", dict, where) for kind in ("read", "read+write", "write")]
    read_, both, write = (field(s, "streams", int, where) for s in streams)
    return _KERNELS.get((name, read_, both, write), quoted(name, 40))


def _quantity(value: Any, si: str, where: str) -> float:
    """A value such as `42.98 GB/s`; prefixes are decimal, as kerncraft and likwid-bench mean them."""
    match = re.fullmatch(r"([\d.]+(?:[eE][+-]?\d+)?)\s*(\S.*)", value.strip()) if isinstance(value, str) else None
    unit = unit_of(match[2]) if match else None
    if match is None or unit is None or unit.si != si:
        raise FormatError(f"{where}: found '{quoted(value, 40)}', a value in {si} is required")
    return scaled(number(match[1], where, above_zero=True), unit.factor, where)


def _peaks(found: dict[str, Any], about: About) -> list[Record]:
    made = []
    if "clock" in found:
        made.append(theirs(about, "clock", "Hz", "none", [_quantity(found["clock"], "Hz", f"{_TOOL}: clock")]))
    for precision, rates in field({"FLOPs per cycle": {}, **found}, "FLOPs per cycle", dict, _TOOL).items():
        where = f"{_TOOL}: FLOPs per cycle: {quoted(precision, 20)}"
        if not isinstance(rates, dict):
            raise FormatError(f"{where}: found {quoted(rates, 40)}, rates by operation are required")
        for operation, rate in rates.items():
            if isinstance(rate, str) and rate.startswith(_UNKNOWN):
                continue
            value = finite(rates, operation, where)
            kinds = {"precision": quoted(precision, 20), "operation": quoted(operation, 20)}
            made.append(theirs(about, "flops_per_cycle", "1", "higher", [value], **kinds))
    return made


def _cache(level: dict[str, Any], name: str, about: About) -> list[Record]:
    """The stated size of one cache of a level, by its sets and ways if they are stated; none of main memory."""
    where = f"{_TOOL}: memory hierarchy: {quoted(name, 40)}"
    cores = level.get("cores per group")
    shared = cores if isinstance(cores, int) and not isinstance(cores, bool) else None
    geometry = level.get("cache per group")
    if isinstance(geometry, dict) and {"sets", "ways", "cl_size"} <= geometry.keys():
        product = 1.0
        for key in ("sets", "ways", "cl_size"):
            stated = field(geometry, key, (int, str), where)  # `64 B` in some files
            text = quoted(stated, 400).removesuffix("B") if key == "cl_size" else quoted(stated, 400)
            factor = number(text, f"{where}: {key}", above_zero=True)
            product = scaled(product, factor, f"{where}: {key}")
        return [theirs(about, "cache_size", "B", "none", [product], level=name, cores_per_group=shared)]
    if (text := optional(level, "size per group")) and not text.startswith(_UNKNOWN):
        capacity = size(text, f"{where}: size per group")
        return [theirs(about, "cache_size", "B", "none", [capacity], level=name, cores_per_group=shared)]
    return []


def _block(block: Any, level: str, threads_per_core: Any, kernels: dict[str, str], about: About) -> list[Record]:
    """The measurements of one level with one number of threads a core."""
    where = f"{_TOOL}: measurements: {quoted(level, 40)}: {quoted(threads_per_core, 20)}"
    if not isinstance(threads_per_core, int):
        raise FormatError(f"{where}: a number of threads per core is required")
    cores, threads = (field(block, key, list, where) for key in ("cores", "threads"))
    sizes = field(block, "total size", list, where)
    results = field(block, "results", dict, where)
    made = []
    for kernel, name in kernels.items():
        rates = held(results, kernel, list, where)
        at = f"{where}: {quoted(kernel, 40)}"
        if not len(rates) == len(cores) == len(threads) == len(sizes) or not rates:
            raise FormatError(f"{at}: found {len(rates)} rates, {len(cores)} are required, one a number of cores")
        for i, rate in enumerate(rates):
            made.append(
                ours(
                    about,
                    "bandwidth",
                    "bandwidth_net",
                    [_quantity(rate, "B/s", at)],
                    kernel=name,
                    threads=field({"threads": threads[i]}, "threads", int, at),
                    cores=field({"cores": cores[i]}, "cores", int, at),
                    footprint_bytes=round(_quantity(sizes[i], "B", f"{where}: total size")),
                    level=level,
                    threads_per_core=threads_per_core,
                )
            )
    return made


READERS: Final = [Reader("kerncraft", "kerncraft machine description, YAML", recognises, whole(read))]
