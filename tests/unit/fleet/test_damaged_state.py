"""A damaged state of a fleet is refused with what to do: deciding without it would forget what was decided."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.errors import MeshmarkError
from meshmark.fleet.cases import State
from meshmark.fleet.folder import Fleet


@pytest.mark.parametrize("text", ["{", "[]", '{"open": 3}', '{"open": {}, "closed": [[1]], "discoveries": 1}'])
def test_a_damaged_state_is_refused_with_what_to_do(tmp_path: Path, text: str) -> None:
    fleet = Fleet(tmp_path)
    State.load(fleet, "hawk").save(fleet, "hawk")
    path = State.path(fleet, "hawk")
    assert State.load(fleet, "hawk").open == {}
    path.write_text(text)
    with pytest.raises(MeshmarkError, match=f"{path.name}: not the state of a fleet") as found:
        State.load(fleet, "hawk")
    assert "restore it" in found.value.hint
