"""Tables of typed columns: what goes in comes out, with dictionaries and without."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshmark.values.arrow import (
    array_of,
    decoded,
    encoded,
    listed,
    listed_once,
    numbers,
    rows_of,
    selected,
    table_of,
)

TYPES = {
    "text": "VARCHAR",
    "count": "BIGINT",
    "value": "DOUBLE",
    "flag": "BOOLEAN",
    "all": "DOUBLE[]",
    "names": "VARCHAR[]",
}
TEXT = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
NUMBER = st.floats(allow_nan=False)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "text": TEXT,
            "count": st.none() | st.integers(-(2**63), 2**63 - 1),
            "value": st.none() | NUMBER,
            "flag": st.none() | st.booleans(),
            "all": st.none() | st.lists(st.none() | NUMBER, max_size=3),
            "names": st.none() | st.lists(TEXT, max_size=3),
        }
    )
)


@given(ROWS)
def test_rows_come_out_as_they_went_in(rows: list[dict[str, Any]]) -> None:
    table = table_of(rows, TYPES)
    assert rows_of(table) == rows_of(decoded(encoded(table))) == pa.table(table).to_pylist() == rows
    assert listed_once(table["text"]) == [row["text"] for row in rows]
    assert numbers(table["value"]).tolist() == pytest.approx(
        [float("nan") if row["value"] is None else row["value"] for row in rows], nan_ok=True
    )
    backwards = range(len(rows))[::-1]
    assert rows_of(selected(encoded(table), backwards)) == rows[::-1]


def test_a_column_that_a_row_lacks_has_no_value() -> None:
    assert rows_of(table_of([{"a": "x"}, {}], {"a": "VARCHAR", "b": "BIGINT"})) == [
        {"a": "x", "b": None},
        {"a": None, "b": None},
    ]


@pytest.mark.parametrize(
    ("value", "kind"), [(1, "VARCHAR"), ("1", "DOUBLE"), (1.5, "BIGINT"), (2**63, "BIGINT"), (["a", 1], "VARCHAR[]")]
)
def test_a_value_of_another_type_is_an_error(value: object, kind: str) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        array_of([value], kind)


def test_numbers_are_python_numbers() -> None:
    assert [type(v) for v in listed(array_of([1, 2], "BIGINT"))] == [int, int]
    assert [type(v) for v in listed(array_of([1.0, 2.0], "FLOAT"))] == [float, float]
