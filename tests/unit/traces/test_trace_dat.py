"""trace-cmd's files: both versions hold the same events as the pages that they were made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from made_up_trace_dat import version_6, version_7
from tare.base.errors import TareError
from tare.kernel.traces.decode import pieces
from tare.kernel.traces.importing import is_trace_dat, open_trace_dat
from tare.kernel.traces.recording import Recording, open_folder

RECORDING = Path(__file__).parents[2] / "recordings" / "trace-6.18"


def events(recording: Recording) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for piece in pieces(recording.sources, recording.layout, recording.formats):
        for one in piece:
            found.setdefault(one.format.name, []).append({key: column.tolist() for key, column in one.columns.items()})
    return found


@pytest.mark.parametrize(
    "content",
    [version_6(RECORDING), version_6(RECORDING, buffer=True), version_7(RECORDING), version_7(RECORDING, codec="zlib")],
    ids=["version 6", "version 6, an instance", "version 7", "version 7, compressed"],
)
def test_every_version_holds_the_same_events(content: bytes, tmp_path: Path):
    path = tmp_path / "trace.dat"
    path.write_bytes(content)

    recording = open_trace_dat(path, tmp_path)

    assert events(recording) == events(open_folder(RECORDING))
    assert recording.clock == "mono"
    assert recording.comms == {12: "dd", 13: "kworker/u8:1"}


def test_a_clock_that_is_not_marked_is_the_kernels_default(tmp_path: Path):
    path = tmp_path / "trace.dat"
    path.write_bytes(version_6(RECORDING, clock="local global mono"))

    assert open_trace_dat(path, tmp_path).clock == "local"


def test_the_formats_are_found_by_their_number_and_parsed_when_needed(tmp_path: Path):
    path = tmp_path / "trace.dat"
    path.write_bytes(version_7(RECORDING))
    formats = open_trace_dat(path, tmp_path).formats

    (start,) = [number for number in formats if formats[number].name == "writeback_start"]
    assert formats[start].system == "writeback"
    assert len(formats) == len(list((RECORDING / "formats").glob("*/*")))


def test_a_codec_that_python_has_not_is_refused_with_a_way_out(tmp_path: Path):
    path = tmp_path / "trace.dat"
    path.write_bytes(version_7(RECORDING, codec="lzo"))

    with pytest.raises(TareError, match=r"compressed with lzo.*trace-cmd convert"):
        open_trace_dat(path, tmp_path)


@pytest.mark.parametrize("version", [version_6, version_7])
def test_a_file_that_is_cut_off_is_refused_in_words(version: object, tmp_path: Path):
    whole = version(RECORDING)  # type: ignore[operator]
    path = tmp_path / "trace.dat"
    for size in np.linspace(20, whole.index((RECORDING / "cpu0.raw").read_bytes()) - 4096, 25).astype(int).tolist():
        path.write_bytes(whole[:size])
        with pytest.raises(TareError, match=r"cut off|no recorded pages"):
            open_trace_dat(path, tmp_path)


def test_a_file_whose_last_pages_are_missing_gives_what_is_there_and_says_so(tmp_path: Path):
    path = tmp_path / "trace.dat"
    path.write_bytes(version_6(RECORDING)[:-5000])

    recording = open_trace_dat(path, tmp_path)

    assert "cut off" in recording.notes[0]
    assert 0 < sum(map(len, events(recording).values())) <= sum(map(len, events(open_folder(RECORDING)).values()))


def test_other_files_and_other_versions_are_refused(tmp_path: Path):
    path = tmp_path / "trace.dat"
    path.write_bytes(b"hello")
    assert not is_trace_dat(path)
    with pytest.raises(TareError, match=r"not a trace.dat|cut off"):
        open_trace_dat(path, tmp_path)
    path.write_bytes(version_6(RECORDING).replace(b"tracing6", b"tracing9", 1))
    assert is_trace_dat(path)
    with pytest.raises(TareError, match="version 9"):
        open_trace_dat(path, tmp_path)
    path.write_bytes(version_6(RECORDING)[:12] + b"\x01" + version_6(RECORDING)[13:])
    with pytest.raises(TareError, match="big-endian"):
        open_trace_dat(path, tmp_path)
