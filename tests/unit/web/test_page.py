"""The live map as one file: packed values are restored, and the page needs no other file."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.errors import MeshmarkError
from meshmark.watch.frames import FrameMetric
from meshmark.watch.recording import Recorder, RecordingFile
from meshmark.web import page
from meshmark.web.page import one_file, packed_recording, packed_table, shown_metrics, thinned, thinned_by, write_page
from support.made_recordings import frames, header, record, said, unpacked

STATIC = Path(page.__file__).parent / "static"


def unfolded(data: bytes, components: int, ticks: int) -> list[list[float | None]]:
    """Decode like web/src/packed.ts, in an independent implementation."""
    cells = components * ticks
    columns: list[list[float | None]] = []
    for c in range(components):
        value, row = 0, []
        for t in range(c * ticks, (c + 1) * ticks):
            step = data[t] | data[cells + t] << 8
            value = (value + ((step >> 1) ^ -(step & 1))) & 0xFFFF
            row.append(None if value == 0 else (value - 1) / 1000)
        columns.append(row)
    return columns


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.none() | st.floats(0, 60), min_size=3, max_size=3), min_size=1, max_size=30))
def test_what_is_packed_comes_back_to_a_thousandth_and_unknown_stays_so(rows: list[list[float | None]]) -> None:
    values = np.array([[np.nan if v is None else v for v in row] for row in rows]).T
    back = unfolded(packed_table(values), 3, len(rows))
    for c in range(3):
        for t, row in enumerate(rows):
            v, restored = row[c], back[c][t]
            assert (restored is None) == (v is None)
            assert v is None or restored is None or abs(restored - v) <= 0.0005 + 1e-9


def test_only_what_the_page_shows_is_packed() -> None:
    words, data = unpacked(packed_recording(header(), frames([[0.1, None, 1.0, 0.25]] * 3), 3))
    assert [m["name"] for m in words["metrics"]] == ["cpu.busy"]
    assert unfolded(data, 4, 3) == [[0.1] * 3, [None] * 3, [1.0] * 3, [0.25] * 3]
    assert words["header"]["live"] is False and words["header"]["frames"] == 3
    assert words["header"]["absent"] == [{"metric": "memory", "why": "no counters here"}]
    other = header(use={"cpu": "cpu.user"})
    assert list(shown_metrics(other)) == ["cpu.user"]
    stalls = FrameMetric("cpu.stalled", "1", "stalled", "unhalted cycles")
    assert [*shown_metrics(replace(other, metrics=(*other.metrics, stalls)))] == ["cpu.user", "cpu.stalled"]


def test_lists_are_packed_when_they_change() -> None:
    all_frames = frames([[0.1] * 4] * 9)
    for i, frame in enumerate(all_frames):
        frame.processes = [{"pid": 1, "name": "a" if i < 5 else "b", "cpu": 1.0, "threads": 1, "rss": 1, "on": 0}]
    words, _ = unpacked(packed_recording(header(), all_frames, 9))
    assert [(i, p[0]["name"]) for i, p in words["processes"]] == [(0, "a"), (5, "b")]


def test_too_many_frames_become_means_and_the_page_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (thinned_by(36_000, 100), thinned_by(36_001, 100), thinned_by(100_000, 100)) == (1, 2, 3)
    assert thinned_by(36_000, 512) == 3  # keeps the numbers small enough for a browser
    monkeypatch.setattr(page, "MAX_FRAMES", 600)
    all_frames = frames([[n % 2, None, 0.5 if n % 2 else None, n / 1000] for n in range(1000)])
    words, data = unpacked(packed_recording(header(), all_frames, 1000))
    assert words["header"]["thinned"] == {"by": 2, "frames": 1000}
    assert words["header"]["frames"] == 500 and len(words["t_s"]) == 500
    assert words["header"]["period_s"] == pytest.approx(0.2) and words["window_s"][3] == pytest.approx(0.2)
    rows = unfolded(data, 4, 500)
    assert set(rows[0]) == {0.5} and set(rows[1]) == {None} and set(rows[2]) == {0.5}
    assert rows[3][499] == pytest.approx(0.9985, abs=0.0006)


def test_ten_minutes_of_64_components_at_10_hz_stay_small() -> None:
    rng = np.random.default_rng(1)
    walk = np.clip(0.4 + np.cumsum(rng.normal(0, 0.03, (6000, 64)), axis=0) % 0.6, 0, 1)
    packed = packed_recording(header(64), frames(np.round(walk, 3).tolist()), 6000)
    # 384,000 random values with steps of 3 % have about 7 bits of entropy each.
    assert len(packed) < 550_000


def test_a_server_thins_a_recording_too(monkeypatch: pytest.MonkeyPatch) -> None:
    all_frames = frames([[n / 1000, None, 0.5, 0.0] for n in range(1000)])
    all_frames[5].window_s = 0.3  # has three times the weight
    all_frames[1].values["cpu.busy"] = []  # a frame without these values
    thinned_frames = thinned(header(), 1000, lambda begin, count: all_frames[begin : begin + count])
    assert thinned_frames[:2] == (header(), 1000)
    monkeypatch.setattr(page, "MAX_FRAMES", 400)
    thin_header, count, load = thinned(header(), 1000, lambda begin, count: all_frames[begin : begin + count])
    assert (thin_header.more, thin_header.period_s, count) == (
        {"thinned": {"by": 3, "frames": 1000}},
        pytest.approx(0.3),
        334,
    )
    first, second = load(0, 2)
    assert first.values["cpu.busy"] == [pytest.approx(0.001), None, 0.5, 0.0]  # mean of 0 and 2 thousandths
    assert second.values["cpu.busy"][0] == pytest.approx((0.003 + 0.004 + 3 * 0.005) / 5)
    assert (second.seq, second.t_s, second.window_s) == (5, all_frames[5].t_s, pytest.approx(0.5))
    assert [f.seq for f in load(333, 600)] == [999]  # the last frame is in a group of its own


def test_the_page_holds_everything_and_asks_nobody(tmp_path: Path) -> None:
    evil = header(machine="</script><script>alert(1)</script><!--")
    packed = packed_recording(evil, frames([[0.1] * 4] * 3), 3)
    out = tmp_path / "p.html"
    assert write_page(out, f"{evil.machine} – Meshmark", packed) == out.stat().st_size
    text = out.read_text()
    assert "alert(1)</script>" not in text and text.count("<!--") == 0
    assert len(re.findall(r"</script", text, re.IGNORECASE)) == 2  # the end tags of the script and of the data
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "default-src 'none'" in text
    data = re.search(r'id="data">([^<]+)<', text)
    assert data and base64.b64decode(data[1]) == packed
    assert packed == packed_recording(evil, frames([[0.1] * 4] * 3), 3)  # packing again gives the same bytes
    with pytest.raises(MeshmarkError, match="the file exists"):
        write_page(out, "again", packed)
    assert out.read_text() == text


def test_a_script_cannot_be_ended_by_its_own_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index.html").write_text(
        '<head><title>Meshmark</title><link rel="stylesheet" href="main.css" />'
        '<script type="module" src="main.js"></script></head><body></body>'
    )
    (tmp_path / "main.js").write_text('a = "</ScRipt><!-- </body> main.css"')
    (tmp_path / "main.css").write_text('b { content: "</style>" }')
    monkeypatch.setattr(page, "STATIC", tmp_path)
    file = one_file("t", b"")
    assert 'a = "<\\/ScRipt><\\!-- </body> main.css"' in file
    assert file.count("</style>") == 1 and file.endswith('id="data"></script>\n  </body>')
    (tmp_path / "index.html").write_text("<head></head><body></body>")
    with pytest.raises(MeshmarkError, match="another version"):
        one_file("t", b"")
    (tmp_path / "main.js").unlink()
    with pytest.raises(MeshmarkError, match="not built"):
        one_file("t", b"")


def test_replay_writes_pages_of_whole_and_of_cut_recordings(tmp_path: Path) -> None:
    recording = record(tmp_path / "a.parquet", header(), frames([[0.1] * 4] * 40))
    recorder = Recorder(tmp_path / "b.parquet", header())
    with recorder:
        for frame in frames([[0.1] * 4] * 40):
            recorder.add(frame)
        recorder.flush()
        truncated = tmp_path / "cut.part"
        truncated.write_bytes(recorder.part.read_bytes()[:-30])
    for file, limit in ((recording, 40), (truncated, 40)):
        out = tmp_path / f"{file.name}.html"
        status, output, _ = said("replay", str(file), "--html", str(out))
        assert (status, output.strip()) == (0, str(out))
        data = re.search(r'id="data">([^<]+)<', out.read_text())
        assert data
        count = unpacked(base64.b64decode(data[1]))[0]["header"]["frames"]
        assert 0 < count <= limit and count == RecordingFile(file).count()
    status, _, err = said("replay", str(recording), "--html", str(tmp_path / "a.parquet.html"))
    assert status == 1 and "a.parquet.html: the file exists" in err and "Traceback" not in err
    status, _, err = said("replay", str(recording), "--html", "/proc/none/a.html")
    assert status != 0 and "Traceback" not in err


@pytest.mark.parametrize("two", [("--json", "--web"), ("--json", "--html"), ("--web", "--html")])
def test_one_way_to_show_a_recording_at_a_time(tmp_path: Path, two: tuple[str, str]) -> None:
    file = record(tmp_path / "a.parquet", header(), frames([[0.1] * 4] * 3))
    words = [w for name in two for w in ((name, str(tmp_path / "o.html")) if name == "--html" else (name,))]
    status, _, err = said("replay", str(file), *words)
    assert status == 2 and all(name in err for name in two) and "allowed: one of" in err
    assert not (tmp_path / "o.html").exists()
