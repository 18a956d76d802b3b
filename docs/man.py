"""Writes a manual page for every command and every native program, from the text that its `--help` prints.

* build/man/man1: `meshmark` and its commands, for the wheel
* build/man/native/man1: the native programs, for the packages; several have the name of a command, with a hyphen

Pages of instruments also contain metrics, sources of error and requirements, from the instrument's description.

example: .venv/bin/python docs/man.py
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import textwrap
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from meshmark.cli.measure.instrument_help import option_entry
from meshmark.describe import Description, descriptions, find_probe
from meshmark.entry import VERBS
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.store.record import Metric

ROOT: Final = Path(__file__).resolve().parent.parent
PROGRAMS: Final = ("probe", "watch", "place", "load", "model", "node")
NESTED: Final = (("measure", "app"), ("measure", "composite"))  # commands that `measure` does not list
COMMANDS: Final = "Commands"
COLUMNS: Final = 70  # width of examples
LINE: Final = 72  # width of lines of text in the source of a page
SENTENCE_END: Final = re.compile(r"(?<=[a-z\d)][.?!]) +")
STATUS: Final = re.compile(r"\bstatus (\d+)")

Path_ = tuple[str, ...]  # the words of a command: ("meshmark", "fleet", "run")
Rows = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Help:
    """A parsed help text.

    Attributes:
        tables: Rows of terms and texts by heading, such as "Options".
    """

    usage: list[str]
    paragraphs: list[str]
    examples: list[str]
    tables: dict[str, Rows] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """Return the first sentence, for the section NAME."""
        sentence = SENTENCE_END.split(self.paragraphs[0])[0].rstrip(".")
        return sentence if sentence[1:2].isupper() else sentence[:1].lower() + sentence[1:]


def joined(text: str, line: str) -> str:
    """Append a line of a wrapped text. Words may have been wrapped after a hyphen."""
    return text + ("" if not text or re.search(r"\w-$", text) else " ") + line.strip()


def parse(text: str, program: str) -> Help:
    """Parse the help of a command of `program`, which begins lines of usage."""
    usage: list[str] = []
    paragraphs: list[str] = [""]
    tables: dict[str, Rows] = {}
    rows: Rows | None = None
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if match := re.match(r"usage: (.*)", line, re.I):
            usage.append(match[1])
            paragraphs.append("")
            rows = None
        elif indent > 2 and line.strip().startswith(program) and not paragraphs[-1] and rows is None:
            usage.append(line.strip())
        elif match := re.fullmatch(r"(\w[\w ]*):", line):
            rows = tables.setdefault({"Subcommands": COMMANDS, "Verbs": COMMANDS}.get(match[1], match[1]), [])
        elif not line:
            paragraphs.append("")
        elif rows is None or indent == 0:
            rows = None
            paragraphs[-1] = joined(paragraphs[-1], line)
        elif indent == 2:
            term, _, words = line.strip().partition("  ")
            rows.append((re.sub(r",(?=-)", ", ", term), words.strip()))
        else:
            rows[-1] = (rows[-1][0], joined(rows[-1][1], line))
    examples: list[str] = []
    texts: list[str] = []
    for paragraph in paragraphs:
        words, *following = re.split(r"\bexample: ", paragraph)
        texts += [words.strip()] if words.strip() else []
        examples += [example.strip() for example in following]
    return Help(usage, texts, examples, {title: rows for title, rows in tables.items() if rows})


@dataclass(frozen=True, slots=True)
class Page:
    """A manual page. `lists` contains the bullet points by heading."""

    command: Path_
    help: Help
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "-".join(self.command)

    @property
    def title(self) -> str:
        return " ".join(self.command)


def metric(m: Metric) -> str:
    conditions = [m.unit if m.unit != "1" else "", f"{m.better} is better" if m.better != "none" else ""]
    text = ", ".join(filter(None, conditions))
    return m.help + (f" ({text})" if text else "")


def instrument(page: Page, d: Description) -> Page:
    """Return the page of an instrument with the parts of its description that the help omits."""
    detail = d.detail.partition("example: ")[0].strip()
    tables = {**page.help.tables, "Metrics": [(m.name, metric(m)) for m in d.metrics]}
    lists = {
        "Sources of error": d.raw["spoils"],
        "Requirements": d.raw["needs"],
        "References": [f"{d.source}."] if d.source else [],
    }
    first, *others = page.help.paragraphs
    paragraphs = [first, *([detail] if detail and detail not in others else []), *others]
    return replace(page, help=replace(page.help, paragraphs=paragraphs, tables=tables), lists=lists)


def command_pages() -> Iterator[Page]:
    """Yield the pages of `meshmark` and of all its commands."""
    import typer.main

    from meshmark.cli.app import app
    from meshmark.cli.help_form import with_uniform_help
    from meshmark.place.native import ask

    root: Any = with_uniform_help(typer.main.get_command(app))

    def help_of(words: Path_) -> str:
        if words and words[0] in VERBS:
            return ask([*words, "--help"])
        sys.argv[1:] = [*words, "--help"]  # `place` reads it
        with redirect_stdout(io.StringIO()) as output, suppress(SystemExit):
            # Most lines are not wrapped at this width.
            root(list(sys.argv[1:]), prog_name="meshmark", standalone_mode=False, terminal_width=10_000)
        return output.getvalue()

    def walk(command: Any, words: Path_) -> Iterator[Path_]:
        yield words
        for name, subcommand in getattr(command, "commands", {}).items():
            if not subcommand.hidden:
                yield from walk(subcommand, (*words, name))

    for words in (*walk(root, ()), *NESTED):
        yield Page(("meshmark", *words), parse(help_of(words), "meshmark"))
    for name, d in descriptions().items():
        yield instrument(Page(("meshmark", "measure", name), parse(help_of(("measure", name)), "meshmark")), d)


def native_pages() -> Iterator[Page]:
    """Yield the pages of the native programs and of their verbs."""
    for name in PROGRAMS:
        program = f"meshmark-{name}"
        page = native_page(program)
        yield page
        verbs = [verb for verb, _ in page.help.tables.get(COMMANDS, [])]
        for verb in [*verbs, *(["survey"] if name == "probe" else [])]:
            described = descriptions().get(verb) if name == "probe" else None
            verb_page = native_page(program, verb)
            yield (
                verb_page if described is None else instrument(with_described_options(verb_page, described), described)
            )


def native_page(program: str, *verb: str) -> Page:
    path = find_probe().with_name(program)
    text = subprocess.run(
        [program, *verb, "--help"], executable=path, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    parsed = parse(text, program)
    # The help of some verbs names the command of `meshmark` that calls them.
    title = " ".join((program, *verb))
    usage = [re.sub(r"^meshmark[^\[]*(?=\[OPTIONS\])", f"{title} ", line) if verb else line for line in parsed.usage]
    examples = [re.sub(r"^meshmark \w+", title, line) for line in parsed.examples]
    # Some begin with a phrase.
    paragraphs = [re.sub(r"(?<=\w)$", ".", text[:1].upper() + text[1:]) for text in parsed.paragraphs]
    return Page((program, *verb), replace(parsed, usage=usage, examples=examples, paragraphs=paragraphs))


def with_described_options(page: Page, d: Description) -> Page:
    """Return the page with the types, choices and defaults of the description, which the parser's help omits."""
    described = {p.option: option_entry(p) for p in d.parameters}
    rows = [described.get(term.split()[0], (term, text)) for term, text in page.help.tables["Options"]]
    return replace(page, help=replace(page.help, tables={**page.help.tables, "Options": rows}))


# ------------------------------------------------------------------ roff


def escaped(text: str) -> str:
    """Return a text in which nothing is a request or an escape sequence of roff."""
    for character, sequence in (
        ("\\", "\\e"),
        ("-", "\\-"),
        ("`", "\\(ga"),
        ("'", "\\(aq"),
        ("^", "\\(ha"),
        ("~", "\\(ti"),
    ):
        text = text.replace(character, sequence)
    return text


def prose(text: str) -> str:
    """Return a text with bold options, in short lines. A sentence begins a line, after which roff leaves more space."""
    bold = re.sub(r"(?<![\w-])--?[a-zA-Z][\w-]*|`[^`]+`", lambda match: f"\0{match[0].strip('`')}\1", text)
    marked = escaped(bold).replace("\0", "\\fB").replace("\1", "\\fR")
    # Lists without spaces may be broken after a comma.
    marked = re.sub(r"\S{40,}", lambda match: match[0].replace(",", ",\\:"), marked)
    return "\n".join(filled(sentence) for sentence in SENTENCE_END.split(marked))


def filled(text: str) -> str:
    """Return a text in lines that are not requests."""
    lines = textwrap.wrap(text, LINE, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


def term(text: str) -> str:
    """Return an option in bold, and its value in italics without brackets."""
    return re.sub(r"<([^<>]*)>", r"\\fI\1\\fR", re.sub(r"((?:\\-)+[\w\\-]+)", r"\\fB\1\\fR", escaped(text)))


def synopsis(usage: str, title: str) -> str:
    """Return a usage line without the brackets and dots that the parser adds."""
    words = re.sub(r"\[(\[\w+\](?: \[\w+\])*)\](\.\.\.)?", r"\1", usage.removeprefix(title).strip())
    words = re.sub(r"\{([^{}]+?)(?:\.\.\.)?\}", r"\1", words)
    return f"\\fB{escaped(title)}\\fR {escaped(words)}".strip()


def example(command: str) -> str:
    """Return a command in lines that a shell joins, at most `COLUMNS` wide where words permit it."""
    lines = [""]
    words = re.findall(r"(?:'[^']*'|\"[^\"]*\"|\S)+", command)
    if max(map(len, words)) > COLUMNS:
        return escaped(command)
    for word in words:
        if lines[-1].strip() and len(lines[-1]) + len(word) >= COLUMNS:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\e\n".join(map(escaped, lines))


def entries(rows: Rows, kind: str) -> Iterator[str]:
    for name, text in rows:
        shown = re.sub(r" <\w+>$", "", name) if kind == "Arguments" else name
        yield from (".TP", term(shown) if shown.startswith("-") else f"\\fB{escaped(shown)}\\fR", prose(text) or "\\&")


def references(page: Page, pages: Mapping[str, Page]) -> list[str]:
    """Return the names of the related pages: of the group, of its commands, and of the commands that the page names."""
    rows = [row for table in page.help.tables.values() for row in table]
    texts = [*page.help.paragraphs, *page.help.examples, *(text for _, text in rows)]
    names = {"-".join(page.command[:-1]), page.command[0]}
    for words in re.findall(r"\bmeshmark(?:-[a-z]+)?(?: [a-z][a-z_-]*)+", " ".join(texts)):
        prefixes = ["-".join(words.split()[:count]) for count in range(4, 1, -1)]
        names |= {*[name for name in prefixes if name in pages][:1]}
    parents = [page.command, *([()] if len(page.command) == 1 else [])]  # programs refer to each other
    names |= {other.name for other in pages.values() if other.command[:-1] in parents}
    return sorted(name for name in names if name in pages and name != page.name)


def exit_statuses(page: Page) -> Rows:
    """Return the statuses of all commands, and those that only the texts of options state."""
    texts = {0: "The command succeeded."}
    for error in (MeshmarkError, UsageError, AbsentError):
        texts[error.status] = (error.__doc__ or "").partition(". ")[0].partition(";")[0] + "."
    for option, text in page.help.tables.get("Options", []):
        for status in map(int, STATUS.findall(text)):
            texts.setdefault(status, f"See {option.split()[0]}.")
    return [(str(status), texts[status]) for status in sorted(texts)]


def roff(page: Page, pages: Mapping[str, Page], version: str, date: str) -> str:
    """Return a manual page."""
    h = page.help
    out = [
        ".nr HY 0",  # groff 1.23 and later reset .nh and .ad in each section, unless these are set
        ".ds AD l",
        f'.TH "{escaped(page.name.upper())}" 1 "{date}" "Meshmark {version}" "Meshmark commands"',
        ".nh",
        ".ad l",
        ".SH NAME",
        filled(f"{escaped(page.name)} \\- {escaped(h.summary)}"),
        ".SH SYNOPSIS",
    ]
    for usage in h.usage:
        out += [synopsis(usage, page.title), ".br"]
    out[-1] = ".SH DESCRIPTION"
    out += [line for text in h.paragraphs for line in (prose(text), ".PP")][:-1]
    options = [title for title in h.tables if title.startswith("Options")]
    subcommands = [title for title, rows in h.tables.items() if f"{page.name}-{rows[0][0]}" in pages]
    sections = {"Arguments": ["Arguments"], "Options": options, COMMANDS: subcommands}
    sections |= {title: [title] for title in h.tables if title not in ("Arguments", *options, *subcommands)}
    for title, headings in sections.items():
        tables = [heading for heading in headings if heading in h.tables]
        out += [f".SH {title.upper()}"] if tables else []
        for heading in tables:
            out += [f".SS {'General options' if heading == 'Options' else heading}"] if len(tables) > 1 else []
            out += entries(h.tables[heading], title)
    for title, items in page.lists.items():
        out += [f".SH {title.upper()}"] if items else []
        out += [line for item in items for line in (".IP \\(bu 2", prose(item))]
    out += [".SH EXIT STATUS", *entries(exit_statuses(page), "")]
    out += [".SH EXAMPLES"] if h.examples else []
    # A heading begins a paragraph.
    out += [line for text in h.examples for line in (".PP", ".nf", example(text), ".fi")][1:]
    if names := references(page, pages):
        out += [".SH SEE ALSO", ",\n".join(f"\\fB{escaped(name)}\\fR(1)" for name in names)]
    return "\n".join(out) + "\n"


def write(pages: Sequence[Page], folder: Path) -> None:
    """Write pages to a folder, and remove others."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.1"):
        path.unlink()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    date = time.strftime("%Y-%m-%d", time.gmtime(float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())))
    by_name = {page.name: page for page in pages}
    for page in pages:
        (folder / f"{page.name}.1").write_text(roff(page, by_name, version, date), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the manual pages.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "man", help="folder [build/man]")
    out = parser.parse_args().out
    try:
        commands, programs = [*command_pages()], [*native_pages()]
    except (MeshmarkError, OSError, subprocess.SubprocessError) as error:
        print(f"man: error: {error}", file=sys.stderr)
        print("hint: make setup", file=sys.stderr)
        return 1
    write(commands, out / "man1")
    write(programs, out / "native" / "man1")
    return 0


if __name__ == "__main__":
    sys.exit(main())
