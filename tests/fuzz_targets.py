"""What `make fuzz` feeds: each target takes bytes, changed at random from a whole one, and may only raise TareError.

A target is a function of bytes and a folder; SEEDS has what is changed. `tests/unit/base/test_fuzz.py` runs them all.
"""

from __future__ import annotations

import json
import random
import struct
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from made_up_trace_dat import version_6, version_7
from tare.base import untrusted
from tare.base.errors import TareError
from tare.cli.scaffold import reading, weighed
from tare.drivers.sensors.rails import parse_line
from tare.fleet.exchange import Questions
from tare.fleet.inspect import _abilities, _engine_troubles, _misshapen, _other_troubles
from tare.fleet.inventory import Device
from tare.records.model import Record
from tare.records.pack import pack
from tare.records.store import Store
from tare.studies.load import loads
from tare.traces.importing import Summary, opened
from tare_inside.marks import HEADER_BYTES, MAGIC, parse

RECORDING = Path(__file__).parent / "recordings" / "trace-6.18"
LINES = b"""# tracer: nop
 dd-12  [000] .... 100.000001: writeback_start: bdi 8:0: sb_dev 0:0 nr_pages=9 sync_mode=0 kupdate=0 reason=periodic
 kworker/u8:1-13 [001] d..1 100.000200: block_bio_queue: 8,0 W 2048 + 8 [kworker/u8:1]
CPU:1 [LOST 12 EVENTS]
 dd-12  [000] .... 100.100000: writeback_dirty_folio: bdi 8:0: ino=77 index=3
"""
LOOK = {
    "python": "3.8.10", "machine": "aarch64", "kernel": "5.10", "root": True, "free_bytes": 1 << 40, "state": "/s",
    "owner": {"pid": 3, "user": "me", "run": "x"}, "engine": {"code": 0, "out": "tare, version 0.1.0\n", "err": ""},
    "abilities": {"code": 0, "out": json.dumps({"platforms": [{"name": "bare", "ok": True}]}), "err": ""},
}  # fmt: skip
ANSWER = {"ended": "answered", "said": {"code": 0, "text": "t"}, "broken": ["once"], "text": ""}
RECORD = Record("ab" * 8, 1, "s", 0, 0, 0, {"platform": "bare"}, "ok", metrics={"step_s": 0.1}, facts={"device": {}})
TEGRASTATS = (
    b"RAM 534/3964MB (lfb 98x4MB) SWAP 0/1982MB (cached 0MB) CPU [2%@102,off,0%@102,1%@102] EMC_FREQ 0% "
    b"GR3D_FREQ 99%@76 PLL@31C CPU@34.5C PMIC@100C GPU@33C VDD_IN 1234/1200 VDD_CPU 300/290"
)
STUDY = b"study: s\nplatform: [bare, docker]\nworkload:\n  command: {argv: [true], env: {A: '1'}}\nrepeat: 3\n"
_DEVICE = Device(name="a", address="a.example")


def _marks_seed() -> bytes:
    header = MAGIC + struct.pack("<II", 4, 1) + bytes(48) + b"step".ljust(32, b"\0")
    rows = b"".join(struct.pack("<qiHBx", 1000 + n, n, 1, n % 2) for n in range(4))
    return header.ljust(HEADER_BYTES, b"\0") + rows


def _trace(data: bytes, folder: Path) -> None:
    path = folder / "trace"
    path.write_bytes(data)
    summary = Summary()
    with opened(path) as trace:
        for chunk in trace.chunks:
            summary.add(chunk)


def _device_answer(data: bytes, _: Path) -> None:
    found = _json(data)
    if found is not None and not _misshapen(found):
        _abilities(found)
        _engine_troubles(_DEVICE, found)
        _other_troubles(found, 0.0, 0.001)


def _cluster_answer(data: bytes, _: Path) -> None:
    found = _json(data)
    answer = Questions(SimpleNamespace(result=lambda pending: found), 1.0).answer(_DEVICE, object())  # type: ignore[arg-type]
    assert isinstance(answer["text"], str)


def _marks(data: bytes, folder: Path) -> None:
    (folder / "marks.bin").write_bytes(data)
    rows, _ = parse(untrusted.read(folder, "marks.bin") or b"")
    assert all(isinstance(name, str) for _, name, _, _ in rows)


def _work_folder(data: bytes, folder: Path) -> None:
    (folder / "outcome.json").write_bytes(data)
    assert isinstance(untrusted.read_object(folder, "outcome.json"), dict)


def _packed() -> list[bytes]:
    """Two trials in a pack, whole; and what is in it as JSON, to be changed and packed again."""
    with tempfile.TemporaryDirectory(prefix="tare-fuzz-") as folder:
        with Store.create(Path(folder, "store"), {"study": "s"}, "study: s\n") as store:
            for trial, platform in (("ab" * 8, "bare"), ("cd" * 8, "docker")):
                record = replace(RECORD, trial=trial, settings={"platform": platform, "workload": "null"})
                writer = store.begin(replace(record, state="running"))
                writer.seal(replace(record, attempt=writer.attempt), [], "out", "", lost_marks=0)
        with Store.open(Path(folder, "store")) as store:
            return [pack(store, Path(folder, "s.tare")).file.read_bytes()]


def _pack(data: bytes, folder: Path) -> None:
    path = folder / "s.tare"
    path.write_bytes(data)
    with redirect_stderr(StringIO()), reading(path) as store:
        weighed(store)


def _tegrastats(data: bytes, _: Path) -> None:
    parse_line(data.decode("utf-8", "replace"))


def _record(data: bytes, _: Path) -> None:
    found = _json(data)
    if isinstance(found, dict):
        try:
            Record.from_json(found)
        except (ValueError, KeyError, TypeError):  # what the store calls damage, by the trial's name
            return


def _study(data: bytes, _: Path) -> None:
    loads(data, "fuzz")


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


TARGETS: dict[str, tuple[Callable[[bytes, Path], None], list[bytes]]] = {
    "trace.dat": (_trace, [version_6(RECORDING), version_7(RECORDING, codec="zlib")]),
    "text trace": (_trace, [LINES]),
    "device answer": (_device_answer, [json.dumps(LOOK).encode()]),
    "cluster answer": (_cluster_answer, [json.dumps(ANSWER).encode()]),
    "marks": (_marks, [_marks_seed()]),
    "work folder": (_work_folder, [b'{"loss": [1.5, 2], "epochs": {"a": 1}}', b'{"a":' * 90 + b"1" + b"}" * 90]),
    "pack": (_pack, _packed()),
    "tegrastats": (_tegrastats, [TEGRASTATS]),
    "study": (_study, [STUDY]),
    "record": (_record, [json.dumps(RECORD.as_json()).encode()]),
}
_WORDS = (b"null", b'"x"', b"[]", b"{}", b"-1", b"1e999", b"NaN", b"true", b"\xff", b"9" * 30, b"\0\0\0\0", b"[" * 200)


def mutated(seed: bytes, chance: random.Random) -> bytes:
    """A few changes: bits, bytes, lengths, words in the place of values, pieces twice or gone."""
    data = bytearray(seed)
    for _ in range(chance.randint(1, 4)):
        at, size = chance.randrange(len(data) + 1), chance.choice((1, 2, 4, 8, 64))
        change = chance.randrange(6)
        if change == 0:
            data[at : at + 1] = bytes([chance.randrange(256)])
        elif change == 1:
            data[at : at + size] = chance.choice((b"\0", b"\xff", b"\x7f")) * size
        elif change == 2:
            data[at : at + size] = chance.choice(_WORDS)
        elif change == 3:
            del data[at : at + size * chance.choice((1, 16))]
        elif change == 4:
            data[at:at] = data[at : at + size]
        else:
            del data[at:]
    return bytes(data)


def attack(name: str, count: int, start: int = 0) -> list[str]:
    """Run one target on so many inputs; what went wrong, each with its number, by which it can be made again."""
    target, seeds = TARGETS[name]
    wrong = []
    with tempfile.TemporaryDirectory(prefix="tare-fuzz-") as folder:
        for number in range(start, start + count):
            data = mutated(seeds[number % len(seeds)], random.Random(f"{name} {number}"))
            try:
                target(data, Path(folder))
            except TareError:
                pass
            except Exception as error:
                wrong.append(f"{name} {number}: {type(error).__name__}: {str(error)[:200]}")
    return wrong
