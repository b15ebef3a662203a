"""What `make fuzz` feeds: each target takes bytes, changed at random from a whole one, and may only raise TareError.

A target is a function of bytes and a folder. `tests/unit/base/test_fuzz.py` runs them all in a small number;

    python tests/fuzz_targets.py --count 200000 --json FILE [TARGET...]

runs each in a process of its own and writes what it found and what it took: `make fuzz`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from made_up_trace_dat import version_6, version_7
from tare.base import strict_json, untrusted
from tare.base.errors import TareError
from tare.base.secrets import masked_text, masked_words
from tare.base.untrusted import stranger_json
from tare.cli import tare
from tare.cli.device import _row
from tare.cli.scaffold import reading, weighed
from tare.drivers.sensors import parse_line
from tare.fleet.exchange import Questions
from tare.fleet.inspection import Inspection, _abilities, _engine_troubles, _misshapen, _other_troubles
from tare.fleet.inventory import Device
from tare.kernel.traces.importing import Summary, opened
from tare.records.model import Record
from tare.records.pack import pack
from tare.records.parquet import engine
from tare.records.schema import MANIFEST_FILE, RECORD_FILE, STORE_FILE, TRIALS_FOLDER
from tare.records.sealed import manifest_for
from tare.records.store import Store
from tare.studies.load import loads
from tare_inside.marks import HEADER_BYTES, MAGIC, parse

RECORDING = Path(__file__).parent / "recordings" / "trace-6.18"
NOWHERE = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  (refuses what cannot be encoded)
_OF_TOOLS = [path.read_bytes() for path in sorted(RECORDING.with_name("benchmark-tools").iterdir()) if path.is_file()]
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
PRINTED = b"epoch 1 --api-key K7 token=T8 Bearer B9 https://me:pw@host/x Authorization: Basic abc 'x=y' loss 0.4\n"
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
    try:
        found = stranger_json(data)
    except ValueError:
        return
    if not _misshapen(found):
        _abilities(found)
        _engine_troubles(_DEVICE, found)
        _other_troubles(found, 0.0, 0.001)
        facts = {key: found[key] for key in ("owner", "python", "free_bytes")}
        seen = Inspection("a", None, True, True, **facts)
        strict_json.dump(seen.as_json())
        _row(seen)


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


def _stored(path: Path) -> Path:
    """A store of two trials."""
    with Store.create(path, {"study": "s"}, "study: s\n") as store:
        for trial, platform in (("ab" * 8, "bare"), ("cd" * 8, "docker")):
            record = replace(RECORD, trial=trial, settings={"platform": platform, "workload": "null"})
            writer = store.begin(replace(record, state="running"))
            writer.seal(replace(record, attempt=writer.attempt), [], "out", "", lost_marks=0)
    header = json.loads((path / STORE_FILE).read_text())
    (path / STORE_FILE).write_text(json.dumps(header | {"created_utc": "2026-01-01T00:00:00+00:00"}))  # always the same
    return path


def _packed() -> list[bytes]:
    """Two trials in a pack, whole."""
    with (
        tempfile.TemporaryDirectory(prefix="tare-fuzz-") as folder,
        Store.open(_stored(Path(folder, "store"))) as store,
    ):
        return [pack(store, Path(folder, "s.tare")).file.read_bytes()]


VERBS = (["compare"], ["report", "--format", "md", "-o", "-"], ["store", "verify"], ["show"], ["show", "devices"],
         ["papers", "claims"])  # fmt: skip


def _resealed(data: bytes, folder: Path) -> None:
    """A record of wrong types whose manifest fits it, through one of the verbs that read stores."""
    if _json(data) is None:
        return
    template, store = folder / "template", folder / "store"
    if not template.exists():
        _stored(template)
    shutil.rmtree(store, ignore_errors=True)
    shutil.copytree(template, store)
    trial = next((store / TRIALS_FOLDER).glob("ab*"))
    (trial / RECORD_FILE).write_bytes(data)
    (trial / MANIFEST_FILE).unlink()
    (trial / MANIFEST_FILE).write_bytes(manifest_for(trial, 0))
    verb = VERBS[zlib.crc32(data) % len(VERBS)]
    with redirect_stderr(StringIO()), redirect_stdout(NOWHERE):
        try:
            tare.main([*verb[:2], str(store), *verb[2:]], prog_name="tare", standalone_mode=False)
        except (click.ClickException, click.exceptions.Exit):
            pass
        except SystemExit as ended:
            assert ended.code != 70


def _table(ending: str, *more: str) -> Callable[[bytes, Path], None]:
    def target(data: bytes, folder: Path) -> None:
        path = folder / f"table.{ending}"
        path.write_bytes(data)
        with (
            redirect_stderr(StringIO()),
            redirect_stdout(NOWHERE),
            suppress(click.ClickException, click.exceptions.Exit),
        ):
            tare.main(["compare", str(path), *more], prog_name="tare", standalone_mode=False)

    return target


_ROWS = [("bare", 0.1 + n / 1000) if n % 2 else ("docker", 0.11 + n / 1000) for n in range(16)]
CSV = b"platform,step_s\n" + b"".join(f"{name},{value:.4f}\n".encode() for name, value in _ROWS)
JSON_LINES = b"".join(json.dumps({"platform": name, "step_s": value}).encode() + b"\n" for name, value in _ROWS)


_BY_PLATFORM = ("--by", "platform", "--metric", "step_s")


def _exported_seed() -> bytes:
    """The trials of a store as tare exports them."""
    with tempfile.TemporaryDirectory(prefix="tare-fuzz-") as folder, redirect_stderr(StringIO()):
        path = Path(folder, "t.csv")
        words = ["report", str(_stored(Path(folder, "store"))), "--format", "csv", "-o", str(path)]
        tare.main(words, prog_name="tare", standalone_mode=False)
        return path.read_bytes()


def _parquet_seed() -> bytes:
    with tempfile.TemporaryDirectory(prefix="tare-fuzz-") as folder:
        path = Path(folder, "t.parquet")
        rows = ", ".join(f"('{name}', {value})" for name, value in _ROWS)
        with engine(Path(folder)) as db:
            db.execute(f"COPY (SELECT * FROM (VALUES {rows}) t(platform, step_s)) TO '{path}' (FORMAT PARQUET)")
        return path.read_bytes()


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


def _printed(data: bytes, _: Path) -> None:
    text = data.decode("utf-8", "replace")
    masked_text(text)
    masked_words(text.split())


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
    "resealed trial": (_resealed, [json.dumps(replace(RECORD, settings={"platform": "bare"}).as_json()).encode()]),
    "table, CSV": (_table("csv", *_BY_PLATFORM), [CSV]),
    "table, JSON lines": (_table("jsonl", *_BY_PLATFORM), [JSON_LINES]),
    "table, Parquet": (_table("parquet", *_BY_PLATFORM), [_parquet_seed()]),
    "benchmark file": (_table("csv"), [*_OF_TOOLS, _exported_seed()]),
    "tegrastats": (_tegrastats, [TEGRASTATS]),
    "study": (_study, [STUDY]),
    "printed text": (_printed, [PRINTED]),
    "record": (_record, [json.dumps(RECORD.as_json()).encode()]),
}
_WORDS = (b"null", b'"x"', b"[]", b"{}", b"-1", b"1e999", b"NaN", b"true", b"\xff", b"9" * 30, b"\0\0\0\0", b"[" * 200)


_VALUES = (None, "x", [], {}, -1, 1e308, True, 10**30, "\0", ["x"], {"x": 1}, 0, "", [[[[]]]], "1e999", -0.0)


def mutated(seed: bytes, chance: random.Random) -> bytes:
    """A few changes: bits, bytes, lengths, words in the place of values, pieces twice or gone; of JSON, also types."""
    if seed[:1] == b"{" and seed.count(b"\n") == 0 and chance.random() < 0.5:
        return _other_types(seed, chance)
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


def _other_types(seed: bytes, chance: random.Random) -> bytes:
    """The same JSON with one to three of its values replaced or gone: whole, and of another shape."""
    found = json.loads(seed)
    for _ in range(chance.randint(1, 3)):
        at = found
        while at:
            key = chance.choice(sorted(at)) if isinstance(at, dict) else chance.randrange(len(at))
            if isinstance(at[key], (dict, list)) and at[key] and chance.random() < 0.7:
                at = at[key]
                continue
            if chance.random() < 0.2:
                del at[key]
            else:
                at[key] = deepcopy(chance.choice(_VALUES))
            break
    return json.dumps(found).encode()


def remade(name: str, number: int) -> bytes:
    """The input of a target that has this number."""
    seeds = TARGETS[name][1]
    return mutated(seeds[number % len(seeds)], random.Random(f"{name} {number}"))


# They passed the look at an answer's shape, and then broke the table or the JSON of all devices.
_SINCE_2026_11_17 = ({"owner": {"pid": float("nan")}}, {"free_bytes": 10**4000}, {"owner": {"since": 1e999}})


# Inputs that once ended in a traceback or took too long, with the day: they are tried each time.
CORPUS: dict[str, list[bytes]] = {
    "trace.dat": [remade("trace.dat", 1000548), remade("trace.dat", 1001582)],  # 2026-11-17: 4 billion sectors written
    "text trace": [LINES.replace(b"LOST 12 EVENTS", b"LOST 1999999999999999999999999999999 EVENTS")],  # 2026-11-16
    "device answer": [
        b'"x"',
        b"[" * 900 + b"]" * 900,
        *(json.dumps(LOOK | more).encode() for more in _SINCE_2026_11_17),
    ],
    "work folder": [b'{"a":' * 900 + b"1" + b"}" * 900],
    "resealed trial": [
        json.dumps(RECORD.as_json() | {"settings": {"platform": f"\ud800{number}"}, "reasons": ["\udfff"]}).encode()
        for number in range(24)  # through every verb
    ],
}


@dataclass
class Found:
    """What an attack came to."""

    target: str
    inputs: int = 0
    wrong: list[str] = field(default_factory=list)
    cpu_s: float = 0.0
    worst_s: float = 0.0  # of one input, by the clock
    worst_cpu_s: float = 0.0
    worst_input: int = -1
    grown_bytes: int = 0  # of the most memory that the process had, since the first input

    def add(self, other: Found) -> None:
        if other.worst_cpu_s > self.worst_cpu_s:
            self.worst_input, self.worst_cpu_s = other.worst_input, other.worst_cpu_s
        self.worst_s = max(self.worst_s, other.worst_s)
        self.inputs, self.cpu_s = self.inputs + other.inputs, self.cpu_s + other.cpu_s
        self.grown_bytes += other.grown_bytes
        self.wrong += other.wrong


def attack(name: str, count: int, start: int = 0) -> Found:
    """Run one target on so many inputs; what went wrong, each with its number, by which it can be made again."""
    target, _ = TARGETS[name]
    found = Found(name, count)
    before = _most_bytes()
    with tempfile.TemporaryDirectory(prefix="tare-fuzz-") as folder:
        for number in range(start, start + count):
            data = remade(name, number)
            at, at_cpu = time.monotonic(), time.process_time()
            try:
                target(data, Path(folder))
            except TareError:
                pass
            except Exception as error:
                found.wrong.append(f"{name} {number}: {type(error).__name__}: {str(error)[:200]}")
            took_s = time.process_time() - at_cpu
            found.cpu_s += took_s
            found.worst_s = max(found.worst_s, time.monotonic() - at)
            if took_s > found.worst_cpu_s:
                found.worst_input, found.worst_cpu_s = number, took_s
    found.grown_bytes = _most_bytes() - before
    return found


def _most_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _in_pieces(name: str, count: int, start: int, path: Path) -> None:
    total = Found(name)
    path.write_text(json.dumps(asdict(total)))
    for first in range(start, start + count, 1000):
        total.add(attack(name, min(1000, start + count - first), first))
        path.write_text(json.dumps(asdict(total)))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="tare-fuzz-found-") as folder:
        path = Path(folder, "found")
        for name in asked.targets or TARGETS:
            child = multiprocessing.get_context("fork").Process(
                target=_in_pieces, args=(name, asked.count, asked.start, path)
            )
            child.start()
            child.join()
            result = json.loads(path.read_text()) | {"exit": child.exitcode}
            path.unlink()
            results.append(result)
            sys.stdout.write(f"{json.dumps({**result, 'wrong': len(result['wrong'])})}\n")
            sys.stdout.write("".join(f"  {each}\n" for each in result["wrong"][:20]))
            sys.stdout.flush()
            if asked.json:
                asked.json.parent.mkdir(parents=True, exist_ok=True)
                asked.json.write_text(json.dumps({"date": time.strftime("%Y-%m-%d"), "found": results}, indent=1))
    return any(each["wrong"] or each["exit"] for each in results)


if __name__ == "__main__":
    os.environ["TARE_DEBUG"] = ""
    sys.exit(main())
