"""Generates the reference pages whose tables are derived from the descriptions in the programs.

* docs/reference/instruments.md: `meshmark-probe --describe` and docs/reference/instruments/NAME.md (not committed)
* docs/reference/instruments-of-ranks.md: `meshmark-comm --describe` (not committed)
* both also from src/meshmark/described_applications.json
* docs/reference/machine-files.md: the loader's table of keys
* docs/reference/load-metrics.md: the metrics of programs and the columns that their formulas may use
* docs/reference/claims.md: the catalogue of claims

Prose is written by hand; tables are generated, so they cannot disagree with the programs.
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

An instrument is a program that measures a group of metrics. Run it with `meshmark measure NAME`, or without Python with
`meshmark-probe NAME`. `meshmark-probe NAME --describe` prints the description of an instrument as JSON. [Another
page](instruments-of-ranks.md) describes the instruments that run on several MPI ranks.
"""
OUTPUT_OF_RANKS: Final = DOCS / "reference" / "instruments-of-ranks.md"
INSTRUMENTS_OF_RANKS: Final = """# MPI instruments

`meshmark measure NAME` starts the ranks of an MPI instrument; `mpirun -n RANKS meshmark-comm NAME` runs it without
Python. `meshmark-comm NAME --describe` prints the description of an instrument as JSON. See [how to measure
communication](../how-to/communicate.md) and [how ranks are measured](../explanation/ranks.md).

MPI instruments need an MPI library with its development package when Meshmark is built, and the launcher of the library
when they run; otherwise, `meshmark list instruments` does not list them. OpenSHMEM and co-arrays are measured if
installed, and reported absent otherwise.
"""
MACHINES: Final = DOCS / "reference" / "machine-files.md"
MACHINE_FILES: Final = """<!-- written by docs/generate.py; do not edit -->

# Machine files

A machine file (TOML) describes a machine that Meshmark models. `meshmark model list` lists the files of the package.
Every command that takes the name of a machine also takes the path of a file. Every number states its origin:

    clock_ghz = { value = 1.15, published = "gs1280_2003 s2" }
    latency_ns = { value = 7.2, fitted = "A12" }
    entries = { unknown = "not found" }

| origin | text |
|---|---|
| `published` | the source |
| `derived` | how the number follows from published numbers |
| `fitted` | the statements of `machine_facts.toml` to which it was fitted, which then do not validate the model |
| `assumed` | the reason for the assumption; predictions that depend on it are weak |
| `unknown` | the reason why no value is known; the key is treated as absent |

* An origin of a table applies to all plain numbers in it.
* `extends = "other"` inherits the tables of another file of the same folder, or of the package, and overrides them key
  by key; `[topology]` is replaced as a whole. A chain may have at most 16 files.
* A machine without `[memory]` is only a network.
* Numbers are finite, from 0 to 10¹². Exceptions are `cpu.clock_ghz`, from 0.001 to 1000, and counts, which are whole
  numbers from 1. Dates, and lists nested more than two levels deep, are refused.
"""
CLAIMS: Final = DOCS / "reference" / "claims.md"
CATALOGUE: Final = """<!-- written by docs/generate.py; do not edit -->

# Claims

This page lists the published claims that [`meshmark claims`](../how-to/claims.md) tests. Claims are
general; the statements that `meshmark model validate` tests are about the machines of five publications.

* *stated*: the effect that a test must find, and the margin.
* *timing*: the claim is about durations or rates, which a measurement in a guest cannot support.
* *printed*: the computation only repeats published numbers, which is not a test.
* *needs*: what the host must have for the test.
"""
LOAD_METRICS: Final = DOCS / "reference" / "load-metrics.md"
METRICS: Final = """<!-- written by docs/generate.py; do not edit -->

# Metrics of programs

A metric of a [synthetic program](program-files.md) is a formula over the counts and times of kernel calls, with
`+ - * /`, parentheses, numbers, and the names of the columns below. Its value is calculated from the sums over all
calls, never as a mean of ratios.

Define your own metrics as tables in a file for `--metrics`, or in a [scenario](scenario-files.md):

    [metric.bytes_per_flop]
    formula = "(memory_read_bytes + memory_write_bytes) / flops"
    unit = "B/flop"

A name consists of lower-case letters, digits and `_`, and must differ from the names of columns and of keys of a
program. A metric that is a ratio of two sums can be requested with its key in `[[program]]`; other metrics are only
reported. `meshmark load variants --metrics FILE` lists the value for every variant of the calibration data. The file of
a program contains the planned value.
"""
COUNTERS_TEXT: Final = """\
The instrument `kernels` reads hardware counters of the working threads with `perf_event_open`, in a separate run after
the timed samples. The counts of a program are the counts of the calibration data multiplied by its calls.

* Availability depends on the processor, the hypervisor and `kernel.perf_event_paranoid`. Calibration data list absent
  counters with the reason. A metric that needs an absent counter is an error that names the counter.
* At `kernel.perf_event_paranoid` 2, only user code is counted, without context switches (condition `counters_of`).
* If counters are multiplexed, the counts are extrapolated to the whole time.
* Definitions of cache references and misses depend on the processor. To compare machines, prefer the exact counts
  above.
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
    page = DOCS / "reference" / "instruments" / f"{name}.md"
    if page.exists():
        text = page.read_text().strip()
        if text.startswith("# "):  # the title is already written
            text = text.partition("\n")[2].strip()
        # The headings of the page are nested below the heading of the instrument.
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
    out += [f"Conditions that identify a point: {identity}.", ""]
    for title, key in (("Sources of error", "spoils"), ("Requirements", "needs")):
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


def claims() -> list[str]:
    from meshmark.validation.claims.catalogue import Claim
    from meshmark.validation.claims.catalogue import claims as known

    def tests(c: Claim) -> str:
        rows = []
        for t in c.tests:
            needs = " ".join(k if v is True else f"{v} {k}" for k, v in t.needs.items())
            machines = ", ".join(f"`{m}`" for m in t.on) if t.on else t.where
            rows.append(f"{machines}: {t.parameters.get('what', '')}" + (f" (needs {needs})" if needs else ""))
        return "; ".join(rows)

    out = [CATALOGUE.strip(), ""]
    for theme in dict.fromkeys(c.theme for c in known()):
        lines: list[list[object]] = []
        for c in known():
            if c.theme == theme:
                kind = ", ".join(w for w, is_so in (("timing", c.timing), ("printed", c.printed)) if is_so)
                stated = f"{c.expected}, ±{100 * c.margin:.4g} %" if c.relation != "none" else f"0, ±{c.margin:g}"
                lines.append([c.id, c.statement, f"{c.published}: {c.source}", stated, kind, tests(c)])
        out += [f"## {theme.capitalize()}", "", *table(["id", "claim", "published", "stated", "kind", "tests"], lines)]
    return out


def load_metrics() -> list[str]:
    from meshmark.load.calibration.metrics import all_metrics
    from meshmark.load.calibration.native import described_columns
    from meshmark.load.calibration.variants import DERIVED, TIMES

    out = [METRICS.strip(), "", "## Built-in metrics", ""]
    shipped = all_metrics()
    out += table(
        ["metric", "unit", "formula", "can be requested"],
        [[f"`{name}`", m.unit, f"`{m.formula}`", "yes" if m.ratio else "no"] for name, m in shipped.items()],
    )
    descriptions = described_columns()
    counts, counters = (
        {c.name: c.help for c in columns.values()} for columns in (descriptions.counts, descriptions.counters)
    )
    for title, meaning, text in (
        ("Times", TIMES, "Measured times of one call, in s. CPU times are sums over its threads."),
        ("Counts", counts, "Exact counts: each kernel defines the counts of a unit, and a test verifies them."),
        ("Derived", DERIVED, ""),
        ("Counters", counters, COUNTERS_TEXT.strip()),
    ):
        out += [f"## {title}", "", *([text, ""] if text else [])]
        out += table(["column", "meaning, for one call"], [[f"`{name}`", help] for name, help in meaning.items()])
    return out


def instruments(program: str, intro: str, title: str) -> str:
    """Return the page of all instruments of a program and of its applications.

    Raises:
        OSError, CalledProcessError: the program or a library that it needs is missing.
    """
    from meshmark.describe import APPLICATIONS

    output = subprocess.run([PROGRAMS / program, "--describe"], capture_output=True, text=True, check=True).stdout
    descriptions = json.loads(output)
    descriptions += [d for d in json.loads(APPLICATIONS.read_text()) if d["ranks"] == descriptions[0]["ranks"]]
    out = ["<!-- written by docs/generate.py; do not edit -->", "", intro]
    for description in descriptions:
        out += page(description)
    out += [f"## {title}", ""]
    out += parameters([p for p in descriptions[0]["parameters"] if p["name"] in COMMON])
    return "\n".join(out).rstrip() + "\n"


def main() -> int:
    try:
        OUTPUT.write_text(instruments("meshmark-probe", INSTRUMENTS, "Options of all instruments"))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"generate: error: {error}", file=sys.stderr)
        print("hint: make setup", file=sys.stderr)
        return 1
    try:
        title = "Options of all MPI instruments"
        OUTPUT_OF_RANKS.write_text(instruments("meshmark-comm", INSTRUMENTS_OF_RANKS, title))
    except (OSError, subprocess.CalledProcessError):
        print(f"generate: no MPI library: {OUTPUT_OF_RANKS.name} is unchanged", file=sys.stderr)
    MACHINES.write_text("\n".join(machine_files()).rstrip() + "\n")
    LOAD_METRICS.write_text("\n".join(load_metrics()).rstrip() + "\n")
    CLAIMS.write_text("\n".join(claims()).rstrip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
