"""The `syscalls` probe on the real kernel: its counts are those of strace."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from recorder_here import opened, recorded

from tare.base.host import WatchingHost
from tare.kernel.parts.probes.ftrace import Syscalls
from tare.parts.platforms.bare import Bare
from tare.parts.platforms.docker import Docker

pytestmark = [pytest.mark.machine("tracefs"), pytest.mark.holds("tracing")]

# Addresses are not random: where a library lands decides whether its loader has to trim a mapping.
ADDR_NO_RANDOMIZE = 0x0040000
DD = ("dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=5000", "status=none")
ENV = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
_LINE = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:(\d+)\s+)?(\w+)$")


def strace_counts(argv: tuple[str, ...], said: Path) -> tuple[Counter[str], Counter[str]]:
    subprocess.run(["setarch", "-R", "strace", "-f", "-c", "-o", said, *argv], env=ENV, check=True)
    rows = [match for line in said.read_text().splitlines() if (match := _LINE.match(line)) and match[3] != "total"]
    return Counter({row[3]: int(row[1]) for row in rows}), Counter({row[3]: int(row[2]) for row in rows if row[2]})


def held_at_a_gate(folders, argv: tuple[str, ...]) -> tuple[int, int]:
    """A child inside the groups that does nothing until a byte is written, and then becomes the program."""
    gate, opener = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            for file in {f"{folder}/cgroup.procs" for folder in folders}:
                Path(file).write_text(str(os.getpid()))
            os.close(opener)
            ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)
            os.read(gate, 1)
            os.execve(f"/usr/bin/{argv[0]}", list(argv), ENV)
        finally:
            os._exit(127)
    os.close(gate)
    return pid, opener


@pytest.mark.machine("strace", "root")
def test_counts_and_failures_are_those_of_strace(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    with opened(Bare(), tmp_path) as place:
        pid, opener = held_at_a_gate(place.scope().cgroups.values(), DD)
        host = WatchingHost()
        while _state(pid) != "S":
            time.sleep(0.01)
        probe = Syscalls()
        feed = probe.record(host, [place.scope()], raw)
        os.write(opener, b"x")
        assert os.waitpid(pid, 0)[1] == 0
        feed.close()
    tables = {table.name: table.columns for table in probe.tables(raw)}
    table = tables["syscalls"]
    ours, failed = Counter(), Counter()
    for role, name, count, errors in zip(*(table[key] for key in ("role", "name", "count", "errors")), strict=True):
        if role == "workload":
            ours[name] += int(count)
            failed[name] += int(errors)
    assert ours.pop("exit_group") == 1  # strace counts calls when they return
    counts, errors = strace_counts(DD, tmp_path / "strace.txt")
    assert ours == counts
    assert +failed == errors
    assert "lost" not in tables
    whole = sum(counts.values()) + 1
    assert probe.figures(tables, 2) == {"system_calls": whole, "system_calls_step": whole / 2}


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


@pytest.mark.machine("docker")
def test_calls_of_the_job_are_the_workloads_and_those_of_the_engine_the_daemons(tmp_path):
    with opened(Docker(), tmp_path) as place:
        table = recorded(Syscalls(), place, tmp_path / "raw", DD)["syscalls"]
    roles, names = np.asarray(table["role"]), np.asarray(table["name"])
    writes = int(table["count"][(roles == "workload") & (names == "write")].sum())
    assert 5000 <= writes < 5100
    assert int(table["count"][roles == "daemon"].sum()) > 100


def test_calls_that_found_no_room_are_counted_and_said(tmp_path):
    from tare.base.host import Scope

    raw = tmp_path / "raw"
    raw.mkdir()
    probe, host = Syscalls(buffer=4096), WatchingHost()
    feed = probe.record(host, [Scope(pid=os.getpid())], raw)
    subprocess.run(["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=100000", "status=none"], check=True)
    feed.close()
    tables = {table.name: table.columns for table in probe.tables(raw)}
    assert tables["lost"]["events"][0] > 0
    assert any(sentence.startswith("syscalls: ") and "at least" in sentence for sentence in map(str, feed.lost))
