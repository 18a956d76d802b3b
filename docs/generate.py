"""Writes the reference page of every instrument, from `meshmark-probe --describe` and the hand-written
page docs/reference/instruments/NAME.md, if there is one: docs/reference/instruments.md; that of the instruments of
ranks, from `meshmark-comm --describe`: docs/reference/instruments-of-ranks.md; the list of keys of a machine file, from
the loader's own table: docs/reference/machine-files.md; and metrics of programs with the columns that their formulas
know: docs/reference/load-metrics.md.

The first paragraphs are what a person wrote; the tables are what the program says of itself, so
they cannot disagree with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).resolve().parent
PROGRAMS: Final = DOCS.parent / "build" / "release" / "bin"
OUTPUT: Final = DOCS / "reference" / "instruments.md"
INSTRUMENTS: Final = """# Instruments

Each answers one question put to the machine: `meshmark measure NAME`, or alone
`meshmark-probe NAME`. `meshmark-probe NAME --describe` prints what stands here as JSON.
Those that are put to many processes are [instruments of ranks](instruments-of-ranks.md).
"""
OUTPUT_OF_RANKS: Final = DOCS / "reference" / "instruments-of-ranks.md"
INSTRUMENTS_OF_RANKS: Final = """# Instruments of ranks

Each answers one question put to many processes at once: `meshmark measure NAME` starts them, or
`mpirun -n RANKS meshmark-comm NAME` by hand. They need an MPI library with its development package when Meshmark is
built, and its launcher when they run; without it `meshmark list instruments` does not name them. OpenSHMEM and
co-arrays are measured where they are, and reported absent elsewhere. `meshmark-comm NAME --describe` prints what stands
here as JSON. See [how to measure communication](../how-to/communicate.md) and
[how ranks are measured](../explanation/ranks.md).
"""
MACHINES: Final = DOCS / "reference" / "machine-files.md"
MACHINE_FILES: Final = """<!-- written by docs/generate.py; do not edit -->

# Machine files

One TOML file describes a machine; `meshmark model list` shows those of the package, and every command that takes a
machine also takes the path of a file. Every number says where it is from:

    clock_ghz = { value = 1.15, published = "gs1280_2003 s2" }
    latency_ns = { value = 7.2, fitted = "A12" }
    entries = { unknown = "not found" }

| word | means |
|---|---|
| `published` | where it can be read |
| `derived` | how it follows from what can be read |
| `fitted` | the statements (of `machine_facts.toml`) that it was chosen to meet; they then prove nothing |
| `assumed` | why this guess; predictions that rest on it are weak |
| `unknown` | why there is no value; the key stays absent |

One of these words on a table holds for the plain numbers in it. `extends = "other"` takes the tables of another file of
the same folder (or of the package) and overrides them key by key; `[topology]` is replaced whole. A machine without
`[memory]` is a network alone.
"""
LOAD_METRICS: Final = DOCS / "reference" / "load-metrics.md"
METRICS: Final = """<!-- written by docs/generate.py; do not edit -->

# Metrics of programs

A metric is a formula over what calls of kernels count and take: + - * / and brackets, numbers, and the names of columns
below. Of a whole program it is taken from the sums over all its calls, never as a mean of ratios. Metrics of your own
are tables of a file for `--metrics`, or of a [scenario](scenario-files.md):

    [metric.bytes_per_flop]
    formula = "(memory_read_bytes + memory_write_bytes) / flops"
    unit = "B/flop"

A name is small letters, digits and `_`, and neither a column's nor a key's of a program. A metric that is a ratio of
two sums can be prescribed: it is a key of `[[program]]`. Any other can be shown. What every variant of base data gives
is listed by `meshmark load variants --metrics FILE`, what a program is planned to give stands in its file.
"""
COUNTERS_TEXT: Final = """\
The instrument `kernels` counts them in a pass of its own after the timed samples, by the kernel's `perf_event_open`,
on the threads that work; where counters take turns the counts are extrapolated to the whole time. Which of them a
machine has depends on the processor, the hypervisor and `kernel.perf_event_paranoid`: base data name those that are
absent, with the reason, and a metric that needs one is refused by its name. At `paranoid` 2 only user code is
counted, and no switches; the condition `counters_of` says so. What the caches call a reference or a miss is the
processor's own definition: prefer the exact counts above for anything that is compared between machines. In a program
the counts are those of base data times its calls.
"""
COMMON: Final = {
    "ranks",
    "mpi",
    "cpus",
    "memory_node",
    "policy",
    "pages",
    "budget_s",
    "interval_percent",
    "shield",
    "seed",
    "resume",
    "machine",
}


def cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def table(heads: list[str], lines: list[list[object]]) -> list[str]:
    if not lines:
        return []
    out = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return [*out, *("| " + " | ".join(cell(word) for word in line) + " |" for line in lines), ""]


def parameters(described: list[dict[str, Any]]) -> list[str]:
    lines: list[list[object]] = []
    for p in described:
        limits = [
            f"{word} {p[key]:.10g}" for word, key in (("≥", "minimum"), ("≤", "maximum")) if p.get(key) is not None
        ]
        allowed = ", ".join(f"`{choice}`" for choice in p.get("choices") or []) or ", ".join(limits)
        default = f"`{p['default']}`" if p["default"] != "" else "–"
        unit = f" ({p['unit']})" if p["unit"] else ""
        lines.append([f"`{p['option']}`", f"{p['help']}{unit}", p["kind"], default, allowed])
    return table(["option", "meaning", "kind", "default", "allowed"], lines)


def page(described: dict[str, Any]) -> list[str]:
    name = described["name"]
    out = [f"## {name}", "", described["summary"][:1].upper() + described["summary"][1:] + ".", ""]
    detail, _, example = described["detail"].partition("example: ")
    if detail.strip():
        out += [detail.strip(), ""]
    written = DOCS / "reference" / "instruments" / f"{name}.md"
    if written.exists():
        text = written.read_text().strip()
        if text.startswith("# "):  # its title stands above already
            text = text.partition("\n")[2].strip()
        # Its headings go below this instrument's.
        inside_code = False
        for line in text.splitlines():
            inside_code ^= line.startswith("```")
            heading = line.startswith("#") and not inside_code
            out.append(("###" + line.lstrip("#")) if heading else line)
        out.append("")
    if example:
        out += ["Example:", "", f"    {example.strip()}", ""]
    out += parameters([p for p in described["parameters"] if p["name"] not in COMMON])
    metrics: list[list[object]] = [[f"`{m['name']}`", m["unit"], m["better"], m["help"]] for m in described["metrics"]]
    out += table(["metric", "unit", "better", "meaning"], metrics)
    identity = ", ".join(f"`{key}`" for key in described["identity"])
    out += [f"Conditions that tell its points apart: {identity}.", ""]
    for title, key in (("What can spoil it", "spoils"), ("What it needs", "needs")):
        if described[key]:
            out += [f"{title}:", "", *(f"* {line}" for line in described[key]), ""]
    if described["source"]:
        out += [f"Source: {described['source']}.", ""]
    return out


def machine_files() -> list[str]:
    from meshmark.model.keys import KEYS

    out = [MACHINE_FILES.strip(), ""]
    for name, keys in KEYS.items():
        title = {"": "The file", "links.*": "[links.KIND]", "cache[]": "[[cache]]"}.get(name, f"[{name}]")
        out += [f"## {title}", "", *table(["key", "meaning"], [[f"`{k}`", text] for k, text in keys.items()])]
    return out


def load_metrics() -> list[str]:
    from meshmark.load.metrics import all_metrics
    from meshmark.load.variants import COUNTERS, COUNTS, DERIVED, MEANING, TIMES

    out = [METRICS.strip(), "", "## Shipped", ""]
    shipped = all_metrics()
    out += table(
        ["metric", "unit", "formula", "can be prescribed"],
        [[f"`{name}`", m.unit, f"`{m.formula}`", "yes" if m.ratio else "no"] for name, m in shipped.items()],
    )
    for title, names, text in (
        ("Times", TIMES, "Measured, s of one call, of all its threads but for wall time."),
        ("Counts", COUNTS, "Exact: each kernel states what a unit does, and a test counts its accesses."),
        ("Made of these", DERIVED, ""),
        ("Counters", COUNTERS, COUNTERS_TEXT.strip()),
    ):
        out += [f"## {title}", "", *([text, ""] if text else [])]
        out += table(["column", "of one call"], [[f"`{name}`", MEANING[name]] for name in names])
    return out


def instruments(program: str, intro: str, title: str) -> str:
    """The page of all instruments of a program.

    Raises:
        OSError, CalledProcessError: it is not there, or no library that it needs.
    """
    said = subprocess.run([PROGRAMS / program, "--describe"], capture_output=True, text=True, check=True).stdout
    described = json.loads(said)
    out = ["<!-- written by docs/generate.py; do not edit -->", "", intro]
    for one in described:
        out += page(one)
    out += [f"## {title}", ""]
    out += parameters([p for p in described[0]["parameters"] if p["name"] in COMMON])
    return "\n".join(out).rstrip() + "\n"


def main() -> int:
    try:
        OUTPUT.write_text(instruments("meshmark-probe", INSTRUMENTS, "Options of all instruments"))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"generate: error: {error}", file=sys.stderr)
        print("hint: make setup", file=sys.stderr)
        return 1
    try:
        title = "Options of all instruments of ranks"
        OUTPUT_OF_RANKS.write_text(instruments("meshmark-comm", INSTRUMENTS_OF_RANKS, title))
    except (OSError, subprocess.CalledProcessError):
        print(f"generate: no MPI library here: {OUTPUT_OF_RANKS.name} stays as it is", file=sys.stderr)
    MACHINES.write_text("\n".join(machine_files()).rstrip() + "\n")
    LOAD_METRICS.write_text("\n".join(load_metrics()).rstrip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
