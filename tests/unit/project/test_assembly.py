"""The machine code of the hot loops measures what it should.

A loop that is right in C++ can still measure something else: pointer chases that are packed into one vector wait for
each other, and a sum that is kept in memory measures store forwarding."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from functools import cache

import pytest

from meshmark.describe import find_probe

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86-64 instructions"),
    pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump here; apt-get install binutils"),
]
SPILL = re.compile(r"\(%r[sb]p")


@cache
def functions() -> dict[str, list[str]]:
    text = subprocess.run(
        ["objdump", "-d", "-C", "--no-show-raw-insn", str(find_probe())], capture_output=True, text=True, check=True
    ).stdout
    bodies: dict[str, list[str]] = {}
    for block in re.split(r"\n\n", text):
        head = re.match(r"[0-9a-f]+ <(.*)>:\n", block)
        if head:
            bodies[head[1]] = block[head.end() :].splitlines()
    return bodies


def loop(name: str, what: str = "") -> list[str]:
    """Return the longest innermost loop that contains `what`: the instructions from a jump's target to the jump."""
    lines = next(v for k, v in functions().items() if name in k)
    index_of_label = {m[1]: i for i, x in enumerate(lines) if (m := re.match(r"\s*([0-9a-f]+):", x))}
    loops = []
    for i, x in enumerate(lines):
        jump = re.search(r"\bj\w+\s+([0-9a-f]+) ", x)
        if jump and jump[1] in index_of_label and index_of_label[jump[1]] < i:
            loops.append((index_of_label[jump[1]], i))
    inner = [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    inner = [a for a in inner if any(what in x for x in lines[a[0] : a[1] + 1])]
    assert inner, f"{name} has no loop with {what}"
    first, last = max(inner, key=lambda a: a[1] - a[0])
    return [x.split("\t")[-1].split("#")[0].strip() for x in lines[first : last + 1]]


@pytest.mark.parametrize("chains", [2, 3, 4, 5, 6, 8, 10, 12])
def test_chains_are_loads_from_registers_and_nothing_else(chains: int) -> None:
    body = loop(f"walk_together<{chains}>(")
    loads = [x for x in body if re.match(r"mov\s+(0x0)?\((%r\w+)\),\2$", x)]
    assert len(loads) == chains, body
    assert len(body) == chains + 2, body  # the count and the jump


def test_the_pointer_walk_is_a_load_a_step() -> None:
    body = loop("walk_together<1>(")
    assert [x.split()[0] for x in body] == ["mov", "sub", "jne"], body


@pytest.mark.parametrize(
    ("kernel", "instruction", "register"),
    [
        ("avx2_fp64", "vfmadd", "%ymm"),
        ("avx2_fp32", "vfmadd", "%ymm"),
        ("avx512_fp64", "vfmadd", "%zmm"),
        ("avx512_fp32", "vfmadd", "%zmm"),
        ("sse2_fp64", "mulpd", "%xmm"),
    ],
)
def test_multiply_adds_stay_in_registers(kernel: str, instruction: str, register: str) -> None:
    body = loop(f"fma::{kernel}(", instruction)
    assert sum(x.startswith(instruction) and register in x for x in body) >= 12, body
    assert not [x for x in body if "(%" in x], body


@pytest.mark.parametrize(("isa", "store"), [("sse2", "movntpd"), ("avx2", "vmovntpd"), ("avx512", "vmovntpd")])
@pytest.mark.parametrize("kernel", ["copy", "scale", "add", "triad", "update"])
def test_streaming_stores_stream_and_ordinary_ones_do_not(isa: str, store: str, kernel: str) -> None:
    width = {"sse2": "%xmm", "avx2": "%ymm", "avx512": "%zmm"}[isa]
    streaming, ordinary = loop(f"stream::{isa}::{kernel}_nt("), loop(f"stream::{isa}::{kernel}(")
    # The compiler may turn movntpd of doubles into movntps, which is shorter and equivalent.
    streams = [x for x in streaming if re.match(r"v?movntp[sd]\b", x) and width in x]
    assert len(streams) == 4, (store, streaming)
    assert not [x for x in ordinary if "movnt" in x] and not [x for x in streaming if "prefetch" in x]
    assert not [x for x in streaming + ordinary if SPILL.search(x)]
    if kernel != "update":
        assert [x for x in loop(f"stream::{isa}::{kernel}_ahead(", "movnt") if "prefetch" in x]
