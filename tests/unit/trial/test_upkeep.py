"""CPU time that is neither the workload's nor foreign: the runner's, and of those that serve a container."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tare.base.host import LocalHost
from tare.drivers.containers.daemons import listener, serving
from tare.testing import FakeHost
from tare.trial.upkeep import NO_UPKEEP, Upkeep, UpkeepMeter

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Container:
    """A place that two processes serve."""

    def helpers(self):
        return {71, 72}


def note(proc: Path, pid: int, own: int, children: int) -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "stat").write_text(f"{pid} (x) S 1 1 1 0 -1 0 0 0 0 0 {own} 0 {children} 0 20 0 1 0 99")


def test_the_runner_and_the_helpers_of_every_place_are_counted_from_begin_to_end(tmp_path):
    note(tmp_path, os.getpid(), 100, 1000)
    note(tmp_path, 71, 10, 0)
    note(tmp_path, 72, 20, 5)
    meter = UpkeepMeter([Container(), FakeHost()], tmp_path)  # type: ignore[list-item]
    note(tmp_path, os.getpid(), 103, 1000)
    note(tmp_path, 71, 14, 2)
    (tmp_path / "72/stat").unlink()  # it has ended
    assert meter.used() == pytest.approx(Upkeep(7 * TICK_S, 2 * TICK_S))


def test_bare_metal_has_the_runner_alone(tmp_path):
    assert UpkeepMeter([FakeHost()], tmp_path).used() == NO_UPKEEP  # not even listed there


def test_what_started_a_container_serves_it_with_the_containerd_that_it_reports_to_and_the_engine(tmp_path):
    sockets = {name: str(tmp_path / name) for name in ("containerd.sock", "docker.sock")}
    listens = "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); "
    listens += "print(flush=True); time.sleep(60)"
    daemons = [
        subprocess.Popen([sys.executable, "-c", listens, path], stdout=subprocess.PIPE) for path in sockets.values()
    ]
    starts = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", starts, "-address", sockets["containerd.sock"]]
    shim = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        for each in daemons:
            assert each.stdout is not None
            each.stdout.readline()
        assert shim.stdout is not None
        keeper = int(shim.stdout.readline())
        assert serving(LocalHost(), keeper) == {shim.pid, daemons[0].pid}
        assert serving(LocalHost(), keeper, sockets["docker.sock"]) == {shim.pid, *(each.pid for each in daemons)}
        assert serving(LocalHost(), shim.pid) == set()  # it is our own child: no engine started it
        assert serving(FakeHost(), keeper) == set()  # on another device
        os.kill(keeper, 9)
    finally:
        for each in (*daemons, shim):
            each.kill()
            each.communicate()


def test_a_socket_that_nobody_listens_at_has_no_process(tmp_path):
    assert listener(str(tmp_path / "none.sock")) is None
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(tmp_path / "own.sock"))
        line.listen()
        assert listener(str(tmp_path / "own.sock")) == os.getpid()
