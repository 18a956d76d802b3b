"""multichase, multiload and pingpong.

`multichase.txt`, `multichase-samples.txt` and `multichase-multiload.txt` are real runs of commit a1ffd89 on a virtual
machine whose CPUs were busy, hence the odd times; `multichase-pingpong.txt` is written by hand in the layout of a run.
"""

from __future__ import annotations

import pytest

from meshmark.measure.importers.base import FormatError
from meshmark.measure.importers.formats import recognised
from support.imports import fixture, records_of, results_of

SINGLE = fixture("multichase.txt")
SAMPLES = fixture("multichase-samples.txt")
MULTILOAD = fixture("multichase-multiload.txt")
PINGPONG = fixture("multichase-pingpong.txt")


def test_a_single_number_has_its_own_format() -> None:
    assert records_of(SINGLE) and [recognised(text) for text in ("86.5\n", "1234.56\n", "3\n")] == [[]] * 3
    (record,) = records_of(" 86.512\n")
    assert [r.value for r in records_of(" 86.512\n 86.513\n")] == pytest.approx([86.512e-9, 86.513e-9])
    assert record.value == pytest.approx(86.512e-9) and record.instrument == "latency"


def test_the_samples_are_imported_with_their_conditions() -> None:
    (record,) = records_of(SAMPLES)
    assert record.samples == pytest.approx((7468.0e-9, 5475.6e-9, 9692.3e-9, 4827.5e-9))
    assert record.conditions["footprint_bytes"] == 16 * 2**20 and record.conditions["stride_bytes"] == 256
    assert record.conditions["processes"] == 1 and record.conditions["page_bytes"] == 4096


def test_multiload_has_a_loaded_latency_and_rates() -> None:
    records = records_of(MULTILOAD)
    (latency,) = [r for r in records if r.metric == "load_latency"]
    assert latency.value == pytest.approx(22107.249e-9) and latency.instrument == "loaded"
    rates = {(r.instrument, r.conditions["statistic"]): r.value for r in records if r.metric == "bandwidth_net"}
    assert rates == pytest.approx(
        {
            ("loaded", "mean"): 186 * 2**20,
            ("loaded", "best"): 390 * 2**20,
            ("bandwidth", "mean"): 506 * 2**20,
            ("bandwidth", "best"): 982 * 2**20,
        }
    )
    assert records[-1].conditions["kernel"] == "triad" and records[-1].conditions["footprint_bytes"] == 16777216


def test_pingpong_has_a_time_for_each_pair() -> None:
    times = {(r.conditions["from_cpu"], r.conditions["to_cpu"]): r.value for r in records_of(PINGPONG)}
    assert len(times) == 6 and times[0, 1] == pytest.approx(23.6e-9) and times[1, 3] == pytest.approx(98.7e-9)
    assert times[2, 3] == pytest.approx(22.9e-9)


def test_the_cpus_of_pingpong_are_not_taken_for_labels_of_tasks() -> None:
    cpus = 40
    head = "  ".join(f"{cpu:6}" for cpu in range(1, cpus))
    rows = "".join(
        f" {a}: " + " ".join(f"{a + b / 10:8.1f}" for b in range(a + 1, cpus)) + "\n" for a in range(cpus - 1)
    )
    text = PINGPONG.partition("\n\n")[0] + f"\n\n     {head}\n{rows.replace('     0.', '    10.')}\n"
    records = records_of(text * 3)
    assert len(records) == 3 * cpus * (cpus - 1) // 2 and "task" not in records[0].conditions


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\n4827.5\n", "\n482.5\n", "outside of its samples"),
        ("stride = 256", "stride = x", "stride: found 'x', a count is required"),
    ],
)
def test_a_damaged_run_is_left_out_of_several(old: str, new: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        results_of(SAMPLES.replace(old, new))
    assert len(results_of(SAMPLES + SAMPLES.replace(old, new) + SAMPLES).records) == 2
