"""Every command and every native program has a manual page with all its options, which is valid roff."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer.main

from meshmark.cli.app import app
from meshmark.describe import descriptions, find_probe
from support.scripts import docs_script

man = docs_script("man")
OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with all pages."""
    path: Path = tmp_path_factory.mktemp("man")
    man.write([*man.command_pages()], path / "man1")
    man.write([*man.native_pages()], path / "native" / "man1")
    return path


def text(path: Path) -> str:
    """Return the text of a page without fonts."""
    return re.sub(r"\\f[BIR]|\\:", "", path.read_text(encoding="utf-8")).replace("\\-", "-")


def option_terms(path: Path) -> set[str]:
    """Return the options that a page describes."""
    return {option for line in re.findall(r"^\.TP\n(-.*)", text(path), re.M) for option in OPTION.findall(line)}


def commands(group: Any, path: tuple[str, ...] = ("meshmark",)) -> dict[str, set[str]]:
    """Return the options of all commands by the name of the page."""
    by_page = {"-".join(path): {o for p in group.params if p.param_type_name == "option" for o in p.opts}}
    for name, command in getattr(group, "commands", {}).items():
        by_page |= commands(command, (*path, name))
    return by_page


def test_every_command_has_a_page_with_its_options(folder: Path) -> None:
    by_page = commands(typer.main.get_command(app))
    by_page["meshmark-measure"] = set()  # the pages of the instruments have the options
    by_page |= {
        f"meshmark-measure-{d.name}": {p.option for p in d.parameters} - {"--resume"} | {"--on", "--json"}
        for d in descriptions().values()
    }
    by_page |= {"meshmark-measure-app": {"--command"}, "meshmark-measure-composite": {"--against"}}
    assert {path.stem for path in (folder / "man1").iterdir()} == by_page.keys()
    missing = {name: options - option_terms(folder / "man1" / f"{name}.1") for name, options in by_page.items()}
    assert {name: options for name, options in missing.items() if options} == {}


def test_every_native_program_has_a_page_with_its_options(folder: Path) -> None:
    pages = [*(folder / "native" / "man1").iterdir()]
    assert {f"meshmark-{name}" for name in man.PROGRAMS} < {path.stem for path in pages}
    for path in pages:
        program, *verb = path.stem.split("-", 2)[1:]
        argv = [find_probe().with_name(f"meshmark-{program}"), *verb, "--help"]
        output = subprocess.check_output(argv, text=True)
        printed = {o for line in re.findall(r"^  (-.*?)(?:  |$)", output, re.M) for o in OPTION.findall(line)}
        assert printed == option_terms(path), path.stem


def test_a_synopsis_names_the_verb_of_a_native_program(folder: Path) -> None:
    for name, line in (("place", "meshmark-place VERB [OPTIONS]"), ("load-run", "meshmark-load run [OPTIONS] PLAN")):
        assert f".SH SYNOPSIS\n{line}\n" in text(folder / "native" / "man1" / f"meshmark-{name}.1")


def test_the_page_of_an_instrument_has_what_its_description_says(folder: Path) -> None:
    page = text(folder / "man1" / "meshmark-measure-latency.1").replace("\n", " ")
    for words in ("load_latency", "plateaus of the curve", "--footprint sizes", "McVoy, Staelin", "the page tables of"):
        assert words in page


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("meshmark-compare", ["See --min-judged.", "meshmark compare host@2026-10 host", "machine of the store"]),
        ("meshmark-fleet", ["meshmark-fleet-run(1)", "meshmark(1)"]),
        ("meshmark-run", ["[OPTIONS] -- COMMAND [ARGUMENTS]", "meshmark-list(1)", "See --timeout."]),
        ("meshmark-measure-app", ["[FILE]\n", "'./a.out {size}'"]),
        ("meshmark-experiment", ["See --allow-unjudged."]),
        ("meshmark-model-init", ["[OPTIONS] [TEMPLATE] [FILE]\n"]),
    ],
)
def test_a_page_has_synopsis_statuses_examples_and_references(folder: Path, name: str, words: list[str]) -> None:
    page = text(folder / "man1" / f"{name}.1").replace("\\(aq", "'")
    assert [word for word in words if word not in page] == []


def test_pages_refer_only_to_pages_that_exist(folder: Path) -> None:
    for path in folder.rglob("*.1"):
        for name in re.findall(r"(meshmark[\w-]*)\(1\)", text(path)):
            assert path.with_name(f"{name}.1").exists(), (path.stem, name)


def test_a_help_text_is_parsed_into_its_parts() -> None:
    parsed = man.parse(
        "Usage: tool go [OPTIONS] PID\n       tool go --all\n\n  Go on. It goes on and\n  on.\n\n"
        "  example: tool go 1 --long-\n  option\n\nArguments:\n  PID   a process\n\nOptions:\n"
        "  -h,--help  show it\n  --long-option <text>\n             a text, which\n             is long\n",
        "tool",
    )
    assert parsed.usage == ["tool go [OPTIONS] PID", "tool go --all"]
    assert (parsed.summary, parsed.paragraphs) == ("go on", ["Go on. It goes on and on."])
    assert parsed.examples == ["tool go 1 --long-option"]
    assert parsed.tables == {
        "Arguments": [("PID", "a process")],
        "Options": [("-h, --help", "show it"), ("--long-option <text>", "a text, which is long")],
    }


def test_no_text_becomes_a_request_or_an_escape_sequence() -> None:
    assert man.prose(".so x\\y -v") == "\\&.so x\\ey \\fB\\-v\\fR"
    assert man.example("a 'b c' -d") == "a \\(aqb c\\(aq \\-d"


def test_the_pages_have_no_warnings(folder: Path) -> None:
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not installed")
    argv = ["mandoc", "-T", "lint", "-W", "warning", *folder.rglob("*.1")]
    completed = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stdout) == (0, "")
