"""The commands of the documentation run, and end as shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.paths import ROOT
from support.scripts import docs_script

transcripts = docs_script("transcripts")
PAGES = [p.relative_to(ROOT) for p in transcripts.pages()]


def wrong(page: Path, slow: bool) -> list[str]:
    problems: list[str] = []

    def report(done: transcripts.Done) -> None:
        if done.status == 77:
            pytest.skip(f"{done.command}: {done.output[-200:]}")
        if not done.right or "Traceback" in done.output:
            problems.append(f"{page}:{done.line}: {done.command!r} ended with {done.status}:\n{done.output[-2000:]}")

    transcripts.run_page(ROOT / page, slow, report, busy=True)
    return problems


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_quick_commands_of_a_page_work(page: Path) -> None:
    assert wrong(page, False) == []


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=str)
def test_all_commands_of_a_page_work(page: Path) -> None:
    assert wrong(page, True) == []


PAGE = """text

<!-- file: a.txt -->
```text
hello
```

<!-- transcript: head=1 tail=1 -->
```console
$ seq 3 && \\
  cat a.txt
old
```

<!-- transcript: status=3 -->
```console
$ exit 3
```

<!-- transcript: slow -->
```console
$ echo later
before
```

```console
$ false
```
"""


def test_what_a_command_prints_replaces_what_is_there(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    reports: list[tuple[str, bool]] = []
    new = transcripts.run_page(page, False, lambda done: reports.append((done.command, done.right)))
    assert reports == [("seq 3 && \\\n  cat a.txt", True), ("exit 3", True), ("false", False)]
    assert new == PAGE.replace("\nold\n", "\n1\n…\nhello\n")
    assert "\nlater\n" in transcripts.run_page(page, True, lambda _: None)


def test_an_unknown_option_of_a_transcript_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 1: found option 'quick'"):
        list(transcripts.blocks("<!-- transcript: quick -->\n```console\n$ true\n```\n"))
