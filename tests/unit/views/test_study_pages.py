"""Pages of studies."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from meshmark.errors import UsageError
from meshmark.views.pages.studies import STUDIES, study_page, write_study
from support.made_load import made_study


@pytest.mark.parametrize("study", sorted(STUDIES))
def test_every_study_has_a_page_with_its_numbers(tmp_path: Path, study: str) -> None:
    folder = made_study(tmp_path / "s", study)
    page = write_study(folder).read_text()
    assert f"<h1>{STUDIES[study][0]}</h1>" in html.unescape(page)
    assert (
        "1.340" in page
        and "disturbed" in page
        and "needs &lt;640&gt;" in page
        and "<b>" not in page.split("<script")[0]
    )
    table = page[page.index('id="slowdowns"') :]
    assert re.search(r"1\.2\d\d – 1\.3\d\d", table) and "4 + 4" in table


def test_an_unfinished_study_has_no_page(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no finished study"):
        study_page(made_study(tmp_path / "s", finished=False))
    (tmp_path / "s" / "records.jsonl").write_text('{"type": "result"}\nnonsense\n')
    with pytest.raises(UsageError, match="without results"):
        study_page(tmp_path / "s")
