"""Damaged outputs of all tools: a damaged item is left out with a reason, or the whole file is refused."""

from __future__ import annotations

import pytest

from support.imports import fixture, problems_of, taken_from

DAMAGES = {  # by fixture: the text that is replaced, its replacement, and the expected reason
    "asct.json": [
        ("114.838327", '"slow"', "latency-sweep: row DRAM: Latency [ns]: found 'slow'"),
        ('"DRAM": 1073741824', '"RAM": 1073741824', "found other rows than in the first column"),
        ('"Node 0": {"Node 0": 113.3, "Node 1": 266.5}', '"Node 0": {"Node 0": 113.3}', "idle-latency"),
        ("[ns]", "[cycle]", "no column 'Latency [ns]'"),
    ],
    "google_benchmark.json": [
        (
            '"real_time": 1.1143295449983270e+03',
            '"real_time": "1.1"',
            "real_time: found '1.1', int or float is required",
        ),
        ('"real_time": 1.1143295449983270e+03', '"real_time": 1e999', "a number is required"),
        ('"repetitions": 3', '"repetitions": 4', "found 3 repetitions of 4"),
        ('"time_unit": "us"', '"time_unit": "MB"', "time_unit: found MB; allowed: ns, us, ms, s"),
        ('"run_type": "iteration"', '"run_type": "other"', "run_type: found other; allowed: iteration, aggregate"),
        ('"benchmarks": [', '"benchmarks": ', "not JSON"),
        (
            '"real_time": 1.1143295449983270e+03',
            '"real_time": -1.5',
            "real_time: found -1.5000000000000002e-09, a number above 0",
        ),
        ('"real_time": 1.1143295449983270e+03', '"real_time": 0.0', "real_time: found 0.0, a number above 0"),
        ('"iterations": ', '"iterations": 0,"n": ', "iterations: found 0, so it was not measured"),
    ],
    "hyperfine.json": [
        ("        0.011453001,\n", "", "results 1: min: found 0.011453001, the times give 0.0196292"),
        ('"times": [', '"times": ["1",', "value 1: times: found"),
        ("        0.011453001,\n", "        0.0,\n", "times: found 0.0, a number above 0 is required"),
        ("        0.011453001,\n", "        -0.01,\n", "times: found -0.01, a number above 0 is required"),
        ("        0\n", "        0,\n        0\n", "exit_codes: found 9, 8 are required"),
        ('"median": 0.035235611', '"median": 0.36', "median: found 0.36, the times give 0.0352356"),
        ('"command": "sleep 0.02"', '"command": 7', "results 2: command: found 7, str is required"),
    ],
    "jube.csv": [
        ("2,100,21000.5", "2,100,fast", "line 3: rate: found 'fast', a number is required"),
        ("2,100,", "100,", "line 3: found 6 cells, 7 are required by the header"),
        (",jube_wp_id\n", "\n", "line 2: found 7 cells, 6 are required by the header"),
    ],
    "kerncraft.yaml": [
        ("- 42.98 GB/s", "- 42.98 GHz", "measurements: L1: 1: load: found '42.98 GHz', a value in B/s is required"),
        ("- 42.98 GB/s", "- -42.98 GB/s", "measurements: L1: 1: load: found '-42.98 GB/s', a value in B/s is required"),
        ("          - 42.98 GB/s\n", "", "measurements: L1: 1: load: found 3 rates, 4 are required"),
        ("    L3:\n", "    L4:\n", "measurements: L3: L3: found None, dict is required"),
        ("- level: L3", "- level: [L3", "found no YAML"),
        ("memory hierarchy:", "hierarchy:", "memory hierarchy: found None, list is required"),
    ],
    "mess.csv": [
        (",112.05,", ",x,", "line 5: latency_mean: found 'x'"),
        ("121.337,", "", "line 5: found 7 cells, 9 are required"),
        ("latency_mean", "latency_median", "found no column latency_mean"),
        ("\n100,20,", "\n400,20,", "a percentage is required"),
    ],
    "mess_bwlat.txt": [
        ("379.60015198793", "-379.6", "line 4: latency: found -379.6"),
        ("98.2547212300698\n", "98.25", "a whole bandwidth and a whole latency is required"),
    ],
    "perf_stat.json": [
        ('"75.000000"', '"many"', "line 6: page-faults: found 'many'"),
        ('"75.000000"', '"-75.0"', "line 6: page-faults: found '-75.0', a number of at least 0"),
        ('"event" : "page-faults", ', "", "line 6: found no event"),
        ('"page-faults"', '"page-faults', 'line 6: found \'{"counter-value"'),
    ],
    "phoronix.xml": [
        ("190388.2:", "190388,2:", "result 1: pts/stream-1.3.4: found '190388,2', a number is required"),
        ('<?xml version="1.0"?>', '<!DOCTYPE a [<!ENTITY b "c">]>', "found a document type, none is allowed"),
        ("<Title>Stream</Title>", "<Title>", "found no XML"),
        (
            "      <Entry>\n        <Identifier>node042",
            "      <Entry>\n        <Identifier>node7",
            "found system 'node7'; allowed: the identifiers in <System>",
        ),
        ("<Value>331250</Value>", "<Value>fast</Value>", "result 2: pts/compress-7zip-1.10.0: found 'fast'"),
    ],
    "pyperf.json": [
        ("9.561200204188936e-08", '"fast"', "runs 1: value 1: values: found"),
        ("9.561200204188936e-08", "-9.5e-08", "values: found -9.5e-08, a number above 0 is required"),
        ('"values"', '"value"', "found no values, at least 1 is required"),
        ('"version":"1.0"', '"version":"7.0"', "version: found '7.0', 1.0 is required"),
        ('"unit":"second"', '"unit":"apple"', "unit: found apple; allowed: second, byte, integer"),
        ('"name":"sum_10"', '"title":"sum_10"', "benchmarks 1: name: found None, str is required"),
    ],
    "reframe.txt": [
        ("|82001.0|", "|8200l|", "line 3: copy: found '8200l', a number is required"),
        ("|82001.0|", "|", "line 3: found 35 cells, 36 are required"),
        ("fail|", "gone|", "line 3: result: found 'gone'; allowed: pass, fail"),
        ("41000.5|", "-41000.5|", "line 2: copy: found -41000500000.0, a number above 0 is required"),
    ],
    "reframe-report.json": [
        ('"num_cases": 2', '"num_cases": 3', "runs 1: found 2 of 3 testcases"),
        ("41000.5,", '"fast",', "copy: found 'fast', a number is required"),
        ('"testcases"', '"cases"', "runs 1: testcases: found None, list is required"),
    ],
    "spec.csv": [
        (
            "774.54528,103.575608,1,S,,,,,NR,\n",
            "7s,103.575608,1,S,,,,,NR,\n",
            "line 9: base: reported_time: found '7s', a number is required",
        ),
        (
            '507.cactuBSSN_r,8,529.532167,19.12632,1,S,,,,,NR,"S',
            '507.x_r,8,529.532167,19.12632,1,S,,,,,NR,"S',
            "in one of the tables, both are required",
        ),
        ('"Selected Results Table"', '"Results Table"', '"Selected Results Table": found none'),
        (
            "SPECrate2017_fp_base,30.082246",
            "SPECrate2017_fp_base,31.0",
            "score: found 31.0 and 30.082246, one is required",
        ),
        ("519.lbm_r,8,612.88711,", "519.lbm_r,8,", "line 12: found 11 cells, 12 are required"),
    ],
    "spec_raw.txt": [
        ("reported_time: 819.773002", "reported_time: 8l9", "505_mcf_r: base: 001: base: reported_time: found '8l9'"),
        ("base.001.valid: S", "base.001.state: S", "base: 001: found no valid"),
        ("505_mcf_r.base.001", "505_mcf_r.base.000", "found 1 of 2 runs of a program"),
        ("reported_time: 819.773002", "reported_time 819.773002", "spec.….results.….KEY: VALUE is required"),
    ],
    "multichase-samples.txt": [
        ("avg=5475.6", "avg=54x5.6", "line 11: found ' 5475.6  avg=54x5.6', 1 times and 'avg='")
    ],
    "imb.txt": [
        (
            "# Benchmarking Barrier",
            "# Benchmarking PingPong",
            "Barrier is in the list of benchmarks, but has no results",
        )
    ],
}


# By fixture: the text that is replaced, its replacement, the expected reason, and the numbers of items and records
# that are left out.
LOSSES = {
    "likwid_perfctr.csv": [
        ("6458.3733", "64..3", "Memory read bandwidth [MBytes/s]: found '64..3', a number is required", 1, 2),
        (
            "6458.3733",
            "1e305",
            "Memory read bandwidth [MBytes/s]: found 1e+305, a number below 1e300 is required",
            1,
            2,
        ),
        ("6458.3733", "-6458.3733", "at least 0 is required", 1, 2),
        ("Clock [MHz]", "Clock [Mhz]", "Clock: the unit 'Mhz' is not known", 1, 2),
        ("Memory bandwidth [MBytes/s],9687.6359,0,,,\n", "", "line 21: the table has 8 of 9 rows", 1, 2),
        (
            "Memory bandwidth [MBytes/s],9687.6359,0,,,\n",
            "Memory bandwidth [MBytes/s],9687.6\n",
            "2 whole cells, 6 are",
            1,
            2,
        ),
    ],
    "mlc-snc.txt": [
        ("  77.3\t", "", "a row with a number and 4 cells is required", 1, 4),
        (" 129.8\t", " 12x9.8\t", "found '12x9.8', a number with one decimal is required", 1, 4),
        ("Measuring Loaded", "Measured Loaded", "a row with a number and 4 cells is required", 19, 38),
        ("Using Read-only traffic type\n", "", "'Using Read-only traffic type' above the numbers, or -W", 4, 16),
        ("HITM latency\t45.1", "HITM latency", "'Local Socket L2->L2 HIT latency' with a time in ns is required", 1, 1),
    ],
    "multichase-multiload.txt": [
        ("22107.249", "2210x", "line 2: ChaseNS: found '2210x', a number is required", 1, 3),
        ("22107.249", "1e309", "line 2: ChaseNS: found '1e309', a number is required", 1, 3),
        ("chaseload\t, ", "", "line 2: found 11 cells, 12 are required", 1, 3),
    ],
    "multichase-pingpong.txt": [
        ("    98.0", "", "line 6: found ' 1             98.7', a row with a number and 2 cells", 2, 2),
        ("22.9", " inf", "line 7: found 'inf', a time with one decimal is required", 2, 1),
    ],
    "nvbandwidth.json": [
        ('"276.51"', '"fast"', "testcases[2]: bandwidth_matrix: found 'fast'", 1, 2),
        ('"55.3265"', '"N/A"', "sum: found 110.6583, the cells give 55.3318", 1, 2),
        ('"Passed"', '"Error"', "status: found 'Error'", 1, 2),
    ],
    "osu.txt": [
        ("424.37", "424..37", "line 29: found '424..37', a number with two decimals is required", 1, 1),
        ("                0.52                0.53         100", "", "found 1 cells, 4 are required", 1, 3),
        ("# OSU MPI Bandwidth Test v7.4\n", "", "a title and column names are required above", 17, 17),
        ("                3.18         100\n", "                3.1", "found 3 cells, 4 are required", 1, 3),
    ],
    "stream.txt": [
        ("28102.4", "28..4", "line 30: rate of triad: found '28..4', a number is required", 1, 1),
        ("28102.4", "0.0", "above 0", 1, 1),
        ("28102.4", "1e305", "a number below 1e300 is required", 1, 1),
        ("Triad:", "T:", "line 2: the run has no rate of triad", 1, 1),
    ],
    "babelstream.txt": [
        ("26980.260", "26..260", "line 10: rate: found '26..260', a number is required", 1, 3),
        ("Dot    ", "Dt     ", "line 14: found 'Dt", 1, 3),
    ],
    "babelstream-csv.csv": [
        ("28757.7", "18757.7", "line 4: its size and min_runtime do not give the rate", 1, 3),
        (",0.000890307", "", "7 cells, 8 are required", 1, 3),
    ],
    "lmbench.txt": [
        ("2.00000 18.233", "2.00000 18.2x3", "line 19: found '2.00000 18.2x3', a footprint in MiB", 1, 1),
        ('"stride=128', '"stride', "line 27: the title of its section is required above", 5, 5),
    ],
    "lmbench-bw_mem.txt": [
        ("33.55 1", "33.55 x1", "line 3: found '33.55 x12904.18', a size and a rate in MB", 1, 1),
    ],
    "hpl.txt": [
        ("4.02316250e-03 ...... PASSED", "4.02316250e+13 ...... FAILED", "the residual FAILED its check", 1, 2),
        ("3.0053e+01", "3.0o53e+01", "Gflops: found '3.0o53e+01', a number is required", 1, 2),
        ("3.0053e+01", "-3.0053e+01", "a number above 0 is required", 1, 2),
    ],
    "imb.txt": [
        ("441.04", "441..4", "line 43: Mbytes/sec: found '441..4'", 1, 2),
        ("       203.78", "", "found 3 cells, 4 are required", 1, 2),
        ("          50         0.16       203.78", " time-out.; use -time", "PingPong: time-out; not measured", 1, 2),
    ],
}


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"), [(name, *damage) for name, damages in DAMAGES.items() for damage in damages]
)
def test_what_is_damaged_is_left_out_with_its_reason(name: str, old: str, new: str, reason: str) -> None:
    text = fixture(name)
    assert old in text
    problems = problems_of(text.replace(old, new))
    assert any(reason in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("name", "old", "new", "reason", "items", "records"),
    [(name, *loss) for name, losses in LOSSES.items() for loss in losses],
)
def test_a_damaged_row_is_left_out_and_the_others_are_as_they_were(
    name: str, old: str, new: str, reason: str, items: int, records: int
) -> None:
    text = fixture(name)
    assert old in text
    complete, damaged = (
        [(r.metric, dict(r.conditions), r.samples) for r in taken_from(t)] for t in (text, text.replace(old, new, 1))
    )
    assert reason in " ".join(problems_of(text.replace(old, new, 1)))
    assert len(problems_of(text.replace(old, new, 1))) == items
    assert len(complete) - len(damaged) == records and all(record in complete for record in damaged)
