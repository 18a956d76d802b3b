"""The wheel measures the same as the clone: the same instruments, instruction sets and kernels.

The machine code is compared rather than times, since it needs no quiet machine; bench/wheel.py compares times.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
from pathlib import Path

import pytest

from meshmark.describe import find_probe

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86-64 instructions"),
]
HAND_WRITTEN = re.compile(
    r"mm::(stream::(sse2|avx2|avx512)::\w+|fma::(sse2|avx2|avx512)_\w+|dot::\w+|walk|update_\w+|swap_ball)\("
    r"|void mm::walk_together<\d+>\("
)
_INSTRUCTION = re.compile(r"\s*([0-9a-f]+):\t((?:[0-9a-f]{2} )+)\s*(.*)")
_TARGET = re.compile(r"# ([0-9a-f]+)|\b(?:j\w+|call)\s+([0-9a-f]+)")
_PADDING = re.compile(r"((cs|data16) )*(nop|xchg +%ax,%ax)")  # up to the next function


def functions(program: Path) -> dict[str, bytes]:
    """Return the machine code of the hand-written kernels of a program, as a regular expression by name.

    Addresses outside of a function depend on the linker, so any address matches them.
    """
    argv = ["objdump", "-dCw", program]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    patterns = {}
    for block in text.split("\n\n"):
        head = re.match(r"([0-9a-f]+) <(.*)>:\n", block)
        if head is None or not HAND_WRITTEN.match(head[2]):
            continue
        instructions = [m for line in block[head.end() :].splitlines() if (m := _INSTRUCTION.match(line))]
        codes = [(int(m[1], 16), bytes.fromhex(m[2]), m[3]) for m in instructions]
        while _PADDING.match(codes[-1][2]):
            codes.pop()
        first, end = codes[0][0], codes[-1][0] + len(codes[-1][1])
        patterns[head[2]] = b"".join(_pattern(*code, first, end) for code in codes)
    return patterns


def _pattern(address: int, code: bytes, text: str, first: int, end: int) -> bytes:
    match = _TARGET.search(text)
    if match is None or first <= (target := int(match[1] or match[2], 16)) < end:
        return re.escape(code)
    distance = (target - address - len(code)).to_bytes(4, "little", signed=True)
    before, found, after = code.rpartition(distance)
    assert found, (text, code.hex())
    return re.escape(before) + b".{4}" + re.escape(after)


def test_the_hand_written_kernels_are_the_same_machine_code(unpacked: Path) -> None:
    patterns, wheel = functions(find_probe()), (unpacked / "meshmark" / "bin" / "meshmark-probe").read_bytes()
    for part in ("stream::avx512::triad_nt(", "stream::avx2::read(", "fma::avx512_fp64(", "walk_together<1>("):
        assert any(part in name for name in patterns), part
    assert [name for name, pattern in patterns.items() if not re.search(pattern, wheel, re.DOTALL)] == []


def output(program: Path, *words: str) -> str:
    return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout


def test_both_have_the_same_instruments_and_kernels(unpacked: Path) -> None:
    for name, words in (
        ("probe", ["--describe"]),
        ("load", ["kernels", "--json"]),
        ("load", ["describe"]),
        ("place", ["describe"]),
    ):
        programs = [folder / f"meshmark-{name}" for folder in (find_probe().parent, unpacked / "meshmark" / "bin")]
        of_clone, of_wheel = (output(program, *words) for program in programs)
        assert of_clone == of_wheel and len(of_clone) > 100, (name, words)


@pytest.mark.parametrize(
    "words",
    [
        ["bandwidth", "--kernel", "copy,triad", "--threads", "1", "--footprint", "64KiB", "--isa", "all"],
        ["peak", "--threads", "1", "--isa", "all"],
        ["peak", "--threads", "1"],
        ["loops", "--kernel", "dot", "--length", "64", "--isa", "all"],
        ["loops", "--kernel", "dot", "--length", "64"],
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_both_choose_the_same_instruction_sets(words: list[str], unpacked: Path) -> None:
    def points(program: Path) -> set[str]:
        lines = map(json.loads, output(program, *words, "--budget", "5s", "--interval", "60").splitlines())
        # On a busy machine, the budget may end before a point that was chosen is measured.
        conditions = [line["conditions"] for line in lines if line["type"] in {"result", "absent"}]
        return {
            f"{c.get('kernel')} {c.get('type')} {c.get('store')} {c.get('isa')} {c.get('compiler')}" for c in conditions
        }

    of_clone, of_wheel = (points(p) for p in (find_probe(), unpacked / "meshmark" / "bin" / "meshmark-probe"))
    assert of_clone == of_wheel and of_clone
