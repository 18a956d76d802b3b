"""`make mutants`: plants faults in the core of the native code, and counts those that its tests detect.

A mutant changes one operator, constant or statement of one file. The file is compiled with the command of its
original and linked, before the archives that contain the original, into a program of the native tests of the room.
The sources are never changed: all output is in build/mutants/native. An interrupted run resumes, and only survivors
run again while a file stays the same.

    tests/mutation/native.py [--rooms place,model] [--count 12] [--children 2]

Mutants whose object code equals that of the original change nothing and do not count, nor do those of
equivalent.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import hashlib
import json
import os
import random
import re
import shlex
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from common import FLOOR, ROOT, arguments, equivalent

BUILD: Final = ROOT / "build" / "mutants" / "native"
OUTCOMES: Final = BUILD / "outcomes.json"
CPU_S: Final = 20  # limit of a process of the tests of a mutant, beside five times that of the original
PATIENCE: Final = (
    20  # factor of the time of the tests of the original, plus a minute: the machine may be busy with other work
)
MEMORY_BYTES: Final = 8 << 30  # limit of the tests of a mutant


@dataclass(frozen=True, slots=True)
class Room:
    """The mutated files, relative to native/, and the tests that may detect mutants: files of tests/native, without
    `_test.cpp`."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS: Final = {
    "base": Room(
        ("base/harness/stats.cpp", "base/options/options.cpp"),
        ("stats", "options", "arguments"),
    ),
    "rounds": Room(
        ("base/harness/rounds.cpp", "base/harness/conditions.cpp"),
        ("stats", "rounds"),
    ),
    "ledger": Room(
        ("place/ledger/*.cpp",),
        ("place_ledger_files", "place_ledger"),
    ),
    "policy": Room(
        ("place/policy/*.cpp",),
        ("place_policy",),
    ),
    "search": Room(
        ("place/search/*.cpp",),
        ("place_search", "place_grids", "place_bound_values"),
    ),
    "model": Room(
        ("model/network/routing.cpp", "model/requests.cpp"),
        ("model", "model_network", "model_cores", "model_requests"),
    ),
    "load": Room(
        ("load/scenario/*.cpp",),
        ("load_scenario", "load_threads", "load_job", "load_journal", "load_run"),
    ),
    "watch": Room(
        ("watch/utilisation.cpp", "watch/board.cpp"),
        ("watch", "watch_counters"),
    ),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file.

    Attributes:
        name: Name of the file and a digest of the text of the changed line and of the change; other edits do not
        alter it.
        begin, end: Range of characters of the file that `text` replaces.
    """

    name: str
    file: str
    line: int
    begin: int
    end: int
    text: str


# ---------------------------------------------------------------- operators

_HIDDEN: Final = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | R"(?P<mark>\w*)\(.*?\)(?P=mark)" | "(?:\\.|[^"\\\n])*" | (?<![\w])'(?:\\.|[^'\\\n])+'
    | ^[ ]*\#[^\n]*(?:\\\n[^\n]*)* | \[\[\w+\]\] | \bstatic_assert\b.*?; | \btemplate\ <[^\n]*""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
# Binary operators have spaces around them (clang-format), unlike templates, pointers and references.
_BINARY: Final = {
    "<": ("<=", ">"),
    "<=": ("<", ">"),
    ">": (">=", "<"),
    ">=": (">", "<"),
    "==": ("!=",),
    "!=": ("==",),
    "&&": ("||",),
    "||": ("&&",),
    "+": ("-",),
    "-": ("+",),
    "*": ("/",),
    "/": ("*",),
    "%": ("*",),
    "&": ("|",),
    "|": ("&",),
    "+=": ("-=",),
    "-=": ("+=",),
    "*=": ("/=",),
    "/=": ("*=",),
    "|=": ("&=",),
    "&=": ("|=",),
    "<<": (">>",),
    ">>": ("<<",),
}
_OPERATOR: Final = re.compile(r"(?<= )(?:[<>=!+*/|&-]=|&&|\|\||<<|>>|[<>+*/%&|-])(?= |\n)")
_STEP: Final = re.compile(r"\+\+|--")
_NOT: Final = re.compile(r"!(?=[\w(:*])")
_WORD: Final = re.compile(r"\b(?:true|false)\b|\bstd::(?:min|max)\b(?=[(<])|\b(?:any_of|all_of)\b|\.(?:front|back)\(\)")
_WORDS: Final = {
    "true": "false",
    "false": "true",
    "std::min": "std::max",
    "std::max": "std::min",
    "any_of": "all_of",
    "all_of": "any_of",
    ".front()": ".back()",
    ".back()": ".front()",
}
_NUMBER: Final = re.compile(r"(?<![\w.])(?:\d+\.\d*(?:e-?\d+)?|\d+e-?\d+|\d+)(?![\w.'])")
_STATEMENT: Final = re.compile(
    r"^ +(?!(?:return|throw|const|constexpr|auto|static|using|case|default|else|for|while|if|do|struct|class|enum)\b)"
    r"(?:\+\+|--)?[\w:.>()\[\]-]+(?: [-+*/|&]?= [^\n]*|\([^\n]*\)|\+\+|--)?;$",
    re.MULTILINE,
)
_EARLY: Final = re.compile(r"^ +if \([^\n]*\) (?:return|continue|break|throw|wrong|refuse)\b[^\n]*;$", re.MULTILINE)
# Texts for readers, and limits against absurd input, are not tested.
_SKIPPED: Final = re.compile(r"fprintf\(stderr|\bcomplain\(|\bkMax\w* = |reserve\(")


def masked(text: str) -> str:
    """Return the text, with blanks for everything that is not code."""
    return _HIDDEN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def _changes(code: str) -> Iterator[tuple[int, int, str]]:
    """Yield the begin, end and new text of all changes."""
    for m in _OPERATOR.finditer(code):
        yield from ((m.start(), m.end(), new) for new in _BINARY.get(m[0], ()))
    for m in _STEP.finditer(code):
        yield m.start(), m.end(), "--" if m[0] == "++" else "++"
    for m in _NOT.finditer(code):
        yield m.start(), m.end(), ""
    for m in _WORD.finditer(code):
        yield m.start(), m.end(), _WORDS[m[0]]
    for m in _NUMBER.finditer(code):
        yield m.start(), m.end(), f"({m[0]} * 2)" if set(m[0]) & {".", "e"} else str(int(m[0]) + 1)
        if m[0] == "1":
            yield m.start(), m.end(), "0"
    for pattern in (_STATEMENT, _EARLY):
        for m in pattern.finditer(code):
            if m[0].count("(") == m[0].count(")"):
                yield m.start() + len(m[0]) - len(m[0].lstrip()), m.end(), ";"


def mutants(file: str, text: str) -> list[Mutant]:
    """Return all mutants of a file, in its order; `file` is relative to native/."""
    code, mutants_of_file = masked(text), []
    counts: Counter[tuple[str, int, str]] = Counter()
    for begin, end, new in sorted(_changes(code)):
        first = text.rfind("\n", 0, begin) + 1
        line = text[first : text.find("\n", begin)]
        if _SKIPPED.search(line):
            continue
        key = (line.strip(), begin - first - (len(line) - len(line.lstrip())), new)
        digest = hashlib.sha256(repr((*key, counts[key])).encode()).hexdigest()[:8]
        counts[key] += 1
        mutants_of_file.append(Mutant(f"{file}:{digest}", file, text.count("\n", 0, begin) + 1, begin, end, new))
    return mutants_of_file


def sample(file: str, text: str, count: int, seed: int) -> list[Mutant]:
    """Return at most `count` mutants of a file, at different places if possible; the same for a seed."""
    shuffled = mutants(file, text)
    random.Random(f"{seed} {file}").shuffle(shuffled)
    places: Counter[int] = Counter()
    rounds = {}  # the first mutant of each place precedes the second of any place
    for mutant in shuffled:
        rounds[mutant.name] = places[mutant.begin]
        places[mutant.begin] += 1
    shuffled.sort(key=lambda m: rounds[m.name])
    return sorted(shuffled[:count], key=lambda m: m.begin)


# ---------------------------------------------------------------- building


def configure(rooms: list[Room]) -> None:
    """Build everything with which mutants of these rooms are linked: one object per file, lightly optimised."""
    BUILD.mkdir(parents=True, exist_ok=True)
    flags = ["-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1", "-DCMAKE_UNITY_BUILD=OFF"]
    quiet = ["-DCMAKE_MESSAGE_LOG_LEVEL=WARNING"]
    subprocess.run(
        ["cmake", "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja", *flags, *quiet],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    inputs: set[str] = set()
    for room in rooms:
        inputs.update(w for w in link_line(room.tests) if w.endswith((".o", ".a")))
    words = [w for w in inputs if not w.startswith("/")]
    subprocess.run(["ninja", "-C", str(BUILD), "--quiet", *sorted(words)], check=True)


@cache
def compiling(file: str) -> tuple[list[str], str]:
    """Return the command that compiles a file, and the path of the object."""
    commands = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    path = str(ROOT / "native" / file)
    words = shlex.split(next(c["command"] for c in commands if c["file"] == path))
    return words, words[words.index("-o") + 1]


@cache
def link_line(tests: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that links the named native tests, without unused code."""
    completed = subprocess.run(
        ["ninja", "-C", str(BUILD), "-t", "commands", "mm_tests"], check=True, capture_output=True, text=True
    )
    line = next(x for x in reversed(completed.stdout.splitlines()) if " -o " in x and "&&" in x)
    words = [w for w in shlex.split(line.split("&&")[1]) if w != ":"]
    objects = {f"{name}_test.cpp.o" for name in tests}
    unused = ("mm_instruments.dir", "libmeshmark-place.so")
    return tuple(
        w
        for w in words
        if not (w.endswith("_test.cpp.o") and Path(w).name not in objects) and not any(name in w for name in unused)
    )


def compile_file(file: str, text: str, folder: Path) -> Path | None:
    """Return the object of a changed file; None if it does not compile."""
    words = list(compiling(file)[0])
    source, target = folder / Path(file).name, folder / "changed.o"
    source.write_text(text, encoding="utf-8")
    words[words.index("-o") + 1] = str(target)
    words[words.index("-c") + 1] = str(source)
    for flag in ("-MF", "-MT", "-MD"):
        if flag in words:
            position = words.index(flag)
            del words[position : position + (1 if flag == "-MD" else 2)]
    words[1:1] = ["-w", f"-ffile-prefix-map={folder}=.", "-iquote", str((ROOT / "native" / file).parent)]
    completed = subprocess.run(words, cwd=BUILD, capture_output=True, check=False)
    return target if completed.returncode == 0 else None


def link(file: str, changed: Path, folder: Path, tests: tuple[str, ...]) -> Path | None:
    """Return the program of the named native tests with a changed object."""
    original = compiling(file)[1]
    words = [w for w in link_line(tests) if w != original]
    program = folder / "mm_tests"
    position = words.index("-o")
    words[position : position + 2] = [str(changed), "-fuse-ld=gold", "-o", str(program)]
    completed = subprocess.run(words, cwd=BUILD, capture_output=True, check=False)
    (folder / "tests.log").write_bytes(completed.stderr)
    return program if completed.returncode == 0 else None


# ---------------------------------------------------------------- running


@dataclass(frozen=True, slots=True)
class Limits:
    wall_s: float = 1800.0
    cpu_s: int = 900  # limit of each process


def tested(program: Path, limits: Limits, folder: Path) -> str:
    """Return passed, failed or timeout; processes that the tests started are ended."""
    log = folder / "tests.log"
    command = ["prlimit", f"--as={MEMORY_BYTES}", f"--cpu={limits.cpu_s}", "--core=0", str(program)]
    command += ["--gtest_fail_fast", "--gtest_brief=1"]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with (
        log.open("w") as out,
        subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
        ) as child,
    ):
        try:
            status = child.wait(limits.wall_s)
            return "timeout" if status == -signal.SIGXCPU else "failed" if status else "passed"
        except subprocess.TimeoutExpired:
            return "timeout"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def limits_of(program: Path, folder: Path) -> Limits | None:
    """Return the limits for the tests of a mutant, from the use of the original; None if its tests failed."""
    start_s, before = time.monotonic(), os.times()
    if tested(program, Limits(), folder) != "passed":
        return None
    after, wall_s = os.times(), time.monotonic() - start_s
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Limits(60 + PATIENCE * wall_s, CPU_S + round(5 * cpu_s))


@dataclass(frozen=True, slots=True)
class Original:
    """The object of a file without a fault, and the limits of its tests."""

    object_bytes: bytes
    limits: Limits


def try_original(room: Room, file: str) -> Original | None:
    """Compile, link and test a file as a mutant is. Returns None if its tests fail."""
    folder = BUILD / "work" / "original"
    folder.mkdir(parents=True, exist_ok=True)
    changed = compile_file(file, (ROOT / "native" / file).read_text(encoding="utf-8"), folder)
    if changed is None:
        return None
    program = link(file, changed, folder, room.tests)
    limits = limits_of(program, folder) if program else None
    return Original(changed.read_bytes(), limits) if limits else None


def outcome(room: Room, mutant: Mutant, original: Original, folder: Path) -> str:
    """Return caught, timeout, survived, equal (the same object code) or broken (it does not compile)."""
    folder.mkdir(parents=True, exist_ok=True)
    text = (ROOT / "native" / mutant.file).read_text(encoding="utf-8")
    changed = compile_file(mutant.file, text[: mutant.begin] + mutant.text + text[mutant.end :], folder)
    if changed is None:
        return "broken"
    if changed.read_bytes() == original.object_bytes:
        return "equal"
    program = link(mutant.file, changed, folder, room.tests)
    if program is None:
        return "broken"
    outcomes = tested(program, original.limits, folder)
    return {"passed": "survived", "failed": "caught"}.get(outcomes, outcomes)


def digest_of(file: str) -> str:
    return hashlib.sha256((ROOT / "native" / file).read_bytes()).hexdigest()[:16]


class Kept:
    """Outcomes on disk, valid while the text of a file is the same."""

    def __init__(self) -> None:
        self.all: dict[str, dict[str, str]] = json.loads(OUTCOMES.read_text()) if OUTCOMES.is_file() else {}

    def of(self, file: str) -> dict[str, str]:
        return self.all.setdefault(f"{file} {digest_of(file)}", {})

    def write(self) -> None:
        partial = OUTCOMES.with_suffix(".part")
        partial.write_text(json.dumps(self.all, indent=1), encoding="utf-8")
        partial.replace(OUTCOMES)


def files_of(room: Room) -> list[str]:
    native = ROOT / "native"
    return sorted(p.relative_to(native).as_posix() for pattern in room.sources for p in native.glob(pattern))


def run_file(room: Room, file: str, options: argparse.Namespace, kept: Kept) -> None:
    text = (ROOT / "native" / file).read_text(encoding="utf-8")
    outcomes, skipped = kept.of(file), equivalent()
    for name in [n for n, result in outcomes.items() if result == "survived"]:
        del outcomes[name]  # the current tests may detect it
    pending = [
        m for m in sample(file, text, options.count, options.seed) if m.name not in outcomes and m.name not in skipped
    ]
    if not pending:
        return
    original = try_original(room, file)
    if original is None:
        print(f"{file}: its tests fail without a mutant: {BUILD / 'work' / 'original' / 'tests.log'}", flush=True)
        return
    free = [BUILD / "work" / str(i) for i in range(options.children)]

    def one(mutant: Mutant) -> None:
        folder = free.pop()
        try:
            outcomes[mutant.name] = outcome(room, mutant, original, folder)
        finally:
            free.append(folder)
        kept.write()

    with ThreadPoolExecutor(options.children) as pool:
        list(pool.map(one, pending))


def difference(name: str) -> str:
    file = name.split(":", maxsplit=1)[0]
    text = (ROOT / "native" / file).read_text(encoding="utf-8")
    mutant = next((m for m in mutants(file, text) if m.name == name), None)
    if mutant is None:
        raise SystemExit(f"{name}: no such mutant of today's {file}")
    changed = text[: mutant.begin] + mutant.text + text[mutant.end :]
    return "".join(difflib.unified_diff(text.splitlines(True), changed.splitlines(True), f"native/{file}", name, n=2))


def main() -> int:
    options = arguments(__doc__, "--rooms", ROOMS, 12, "mutants a file [12]")
    rooms = options.rooms
    if options.show:
        print(difference(options.show), end="")
        return 0
    stored, skipped = Kept(), equivalent()
    if not options.survivors:
        configure([ROOMS[name] for name in rooms])
    total: Counter[str] = Counter()
    rows, survivors = [], []
    for name in rooms:
        for file in files_of(ROOMS[name]):
            if not options.survivors:
                run_file(ROOMS[name], file, options, stored)
            sampled = sample(file, (ROOT / "native" / file).read_text(encoding="utf-8"), options.count, options.seed)
            outcomes = stored.of(file)
            counts = Counter("equivalent" if m.name in skipped else outcomes.get(m.name, "not run") for m in sampled)
            survivors += [m for m in sampled if m.name not in skipped and outcomes.get(m.name) == "survived"]
            total += counts
            rows.append((file, counts))
            if not options.survivors:
                print(row(file, counts) if len(rows) > 1 else f"{HEADER}\n{row(file, counts)}", flush=True)
    if options.survivors:
        print("\n".join(f"{m.name} (line {m.line})" for m in survivors))
        return 0
    print(f"{row('all', total)}\nsurvivors: --survivors; the difference of one: --show NAME")
    detected = total["caught"] + total["timeout"]
    return 0 if detected >= FLOOR * (detected + total["survived"]) and not total["not run"] else 1


HEADER: Final = (
    f"{'file':32} {'mutants':>8} {'caught':>8} {'share':>7} {'survived':>9} {'no change':>10} {'no build':>9}"
    f" {'not run':>8}"
)


def row(name: str, counts: Counter[str]) -> str:
    detected = counts["caught"] + counts["timeout"]
    valid, unchanged = detected + counts["survived"], counts["equal"] + counts["equivalent"]
    share = f"{detected / valid:7.0%}" if valid else "      -"
    return (
        f"{name:32} {valid:8} {detected:8} {share} {counts['survived']:9} {unchanged:10} {counts['broken']:9}"
        f" {counts['not run']:8}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
