"""What a device without tare kept of its files, shown to the probes afterwards. No device is needed."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import time
import zlib
from itertools import pairwise
from pathlib import Path

import pytest

from sshd_devices import until
from tare.base.host import LocalHost, Scope
from tare.drivers.places import SOURCE
from tare.fleet.lean_sampler import Learning, Replayed, _replayed
from tare.parts.probes.cpu import Cpu
from tare.parts.probes.memory import Memory
from tare.parts.probes.thermal import Temperature
from tare.records.spool import SpoolWriter, read_spool

STAT = "cpu  {} 0 0 1000 0 0 0 0 0 0\nctxt 5\nprocs_running 1\n"
OFFSET_NS = 7_000_000_000


def kept(ticks):
    return zlib.compress("".join(json.dumps(tick) + "\n" for tick in ticks).encode())


def shown(tmp_path, ticks, paths=("/proc/stat",), first=None, probe=None):
    replayed = Replayed(paths, first or {paths[0]: STAT.format(0)}, lambda t_ns: t_ns + OFFSET_NS)
    report = _replayed(replayed, kept(ticks), [probe or Cpu()], Scope(), SpoolWriter(tmp_path / "spool"))
    return report, read_spool(tmp_path / "spool")


def test_readings_are_those_of_the_texts_at_the_times_when_they_were_read_in_our_time(tmp_path):
    ticks = [
        [0, 1000, 0, 0.5, [[0, 50, STAT.format(100)]]],
        [100_000_000, 2000, 0, 0.6, [[0, 70, STAT.format(300)]]],
        [200_000_000, 0, 0, 0.7, [[0, 90]]],  # nothing has changed
    ]
    report, series = shown(tmp_path, ticks)
    times, busy_s = series["cpu.busy_s"]
    assert list(busy_s) == [1.0, 3.0, 3.0]
    assert list(times) == [OFFSET_NS + 1050, OFFSET_NS + 100_002_070, OFFSET_NS + 200_000_090]
    assert (report.ticks, report.missed) == (3, 0)
    assert report.cpu_s == pytest.approx(0.2)  # of the sampler there, not of us
    assert list(series["sampler.late_s"][1]) == [1e-6, 2e-6, 0.0]


def test_a_file_that_vanished_there_is_lost_from_then_on_and_said(tmp_path):
    ticks = [
        [0, 0, 0, 0.0, [[0, 5, STAT.format(100)]]],
        [100_000_000, 0, 0, 0.0, [[0, 5, errno.ENOENT]]],
        [200_000_000, 0, 1, 0.0, [[0, 5]]],
    ]
    report, series = shown(tmp_path, ticks)
    assert len(series["cpu.busy_s"][1]) == 1
    assert any("stat vanished" in sentence for sentence in map(str, report.lost))
    assert report.missed == 1


def test_a_probe_that_reads_seldom_is_shown_what_was_read_seldom(tmp_path):
    paths = ("/sys/class/thermal/thermal_zone0/temp",)
    first = {paths[0]: "40000\n", "/sys/class/thermal/thermal_zone0/type": "CPU-therm\n"}
    ticks = [[n * 100_000_000, 0, 0, 0.0, [[0, 3, f"{40 + n}000\n"]] if n % 10 == 0 else []] for n in range(25)]
    report, series = shown(tmp_path, ticks, paths, first, Temperature())
    times, degrees = series["temperature.cpu_therm_c"]
    assert list(degrees[:3]) == [40.0, 50.0, 60.0]
    assert [int(t_ns) - OFFSET_NS for t_ns in times[:3]] == [3, 1_000_000_003, 2_000_000_003]
    assert report.lost == []


class Named(LocalHost):
    """This machine in the place of a device."""


def test_probes_are_asked_once_which_files_they_want_and_how_often():
    asked = {file.path: file.period_ns for file in Learning(Named()).files([Cpu(), Memory()], Scope())}
    assert asked["/proc/stat"] == asked["/proc/meminfo"] == 0
    assert asked["/proc/vmstat"] == 1_000_000_000


def test_what_the_sampler_keeps_is_what_the_probes_would_have_read(tmp_path):
    learning = Learning(Named())
    files = learning.files([Cpu(), Memory()], Scope())
    out = tmp_path / "samples"
    script = "import sys; sys.path.insert(0, sys.argv[1]); from tare_inside.agents import lean_sampler as sampler; "
    script += "sampler._SETTLE_NS = 0; sampler.main()"  # each tick is in the file at once
    argv = [sys.executable, "-I", "-B", "-c", script, str(Path(SOURCE).parent), str(out)]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    before_ns = time.monotonic_ns()
    child.stdin.write(json.dumps({"period_ns": 20_000_000, "files": [list(file) for file in files]}).encode() + b"\n")
    child.stdin.flush()
    assert child.stdout.readline() == b"watching\n"
    until(lambda: zlib.decompressobj().decompress(out.read_bytes()).count(b"\n") >= 3, "it has taken three ticks", 60)
    child.stdin.close()
    assert child.wait(60) == 0
    child.stdout.close()
    replayed = Replayed([file.path for file in files], learning.texts, lambda t_ns: t_ns)
    spool = SpoolWriter(tmp_path / "spool")
    report = _replayed(replayed, out.read_bytes(), (Cpu(), Memory()), Scope(), spool)
    series = read_spool(tmp_path / "spool")
    times, busy_s = series["cpu.busy_s"]
    assert len(times) == report.ticks >= 4
    assert before_ns < times[0] < times[-1] < time.monotonic_ns()
    assert all(later >= earlier for earlier, later in pairwise(busy_s))
    assert len(series["memory.pgfault"][1]) >= 2  # at the begin, and at the end whatever the period
    assert 0 < report.cpu_s < 60


@pytest.mark.parametrize("cut", [1, 12, 10_000])
def test_a_sampler_that_was_ended_costs_what_it_had_not_kept_and_no_more(cut, tmp_path):
    packer = zlib.compressobj(1)
    data = b""
    for number in range(40):
        tick = [number * 100_000_000, 0, 0, 0.0, [[0, 5, STAT.format(100 * number)]]]
        data += packer.compress(json.dumps(tick).encode() + b"\n") + packer.flush(zlib.Z_SYNC_FLUSH)
    replayed = Replayed(["/proc/stat"], {"/proc/stat": STAT.format(0)}, lambda t_ns: t_ns)
    report = _replayed(replayed, data[:-cut], [Cpu()], Scope(), SpoolWriter(tmp_path / "spool"))
    assert report.ticks == {1: 40, 12: 39, 10_000: 0}[cut]
    assert any("ended early" in sentence for sentence in map(str, report.lost))
    times, _ = read_spool(tmp_path / "spool").get("cpu.busy_s", ((), ()))
    assert len(times) == report.ticks


def test_what_the_sampler_has_kept_is_in_its_file_also_where_it_is_killed(tmp_path):
    out = tmp_path / "samples"
    script = "import sys; sys.path.insert(0, sys.argv[1]); from tare_inside.agents.lean_sampler import main; main()"
    argv = [sys.executable, "-I", "-B", "-c", script, str(Path(SOURCE).parent), str(out)]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdin.write(json.dumps({"period_ns": 20_000_000, "files": [["/proc/stat", 0]]}).encode() + b"\n")
    child.stdin.flush()
    assert child.stdout.readline() == b"watching\n"
    child.kill()
    child.communicate()
    replayed = Replayed(["/proc/stat"], {}, lambda t_ns: t_ns)
    report = _replayed(replayed, out.read_bytes(), [Cpu()], Scope(), SpoolWriter(tmp_path / "spool"))
    assert report.ticks >= 1
