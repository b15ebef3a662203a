"""dask as a fleet uses it: who may speak to it, where it listens, and a cluster that someone else runs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sshd_devices import until
from tare.fleet.cluster import OwnCluster, WorkerLost
from tare.records.store import Store

RUNS_BESIDE_OTHERS = True

pytestmark = pytest.mark.machine("distributed")


@pytest.fixture(scope="module")
def cluster():
    made = OwnCluster(["one", "two"])
    yield made
    made.close()
    assert not made.folder.exists()


def test_a_question_is_answered_by_the_worker_of_that_name_and_by_no_other(cluster):
    for name in ("one", "two", "one"):
        future = cluster.submit(name, f"pid-{name}-{time.monotonic_ns()}", os.getpid)
        assert future.result(timeout=30) == cluster.pids[name]


def test_a_worker_has_one_thing_to_do_at_a_time(cluster):
    start_s = time.monotonic()
    futures = [cluster.submit("one", f"nap-{number}", time.sleep, 0.5) for number in range(3)]
    for future in futures:
        future.result(timeout=30)
    assert time.monotonic() - start_s >= 1.5


def test_a_worker_that_is_killed_is_told_at_once_and_its_task_runs_nowhere_else(cluster, tmp_path):
    traces = tmp_path / "traces"
    future = cluster.submit("two", "long", subprocess.check_call, ["sh", "-c", f"echo ran >> {traces}; sleep 10"])
    until(traces.exists, "it runs")
    os.kill(cluster.pids["two"], 9)
    cluster.wait([future], 30)
    with pytest.raises(WorkerLost):
        cluster.result(future)
    cluster.restart("two")
    assert cluster.submit("two", "after", os.getpid).result(timeout=30) == cluster.pids["two"]
    assert traces.read_text().count("\n") == 1


def test_everything_listens_on_loopback_only(cluster):
    ours = {*cluster.pids.values(), cluster._scheduler.pid}
    inodes = {str(path.readlink()) for pid in ours for path in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [line.split() for file in ("tcp", "tcp6") for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
    assert len(listening) >= 3
    assert all(address.startswith("0100007F:") for address in listening), listening


def test_who_has_not_the_keys_of_this_run_is_refused(cluster):
    from distributed import Client, Security

    address = json.loads((cluster.folder / "scheduler.json").read_text())["address"]
    assert address.startswith("tls://127.0.0.1:")
    with pytest.raises((OSError, TimeoutError)):
        Client(address.replace("tls://", "tcp://"), timeout=3, set_as_default=False)
    with pytest.raises((OSError, TimeoutError)):
        Client(address, security=Security.temporary(), timeout=3, set_as_default=False)


def test_the_keys_can_be_read_by_nobody_else(cluster):
    assert cluster.folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in cluster.folder.glob("*.pem"))


def test_the_workers_of_a_cluster_that_is_there_are_the_devices(tmp_path):
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{line.getsockname()[1]}"
    port = address.rpartition(":")[2]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    places = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
    dask = [sys.executable, "-m", "dask"]
    environ = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TARE_STATE": str(tmp_path / "there")}
    scheduler = subprocess.Popen([*dask, "scheduler", *places, "--port", port], **quiet)
    words = ["--name", "board", "--resources", "device=1", "--no-nanny", "--nthreads", "1"]
    worker = subprocess.Popen([*dask, "worker", address, *places, *words], env=environ, cwd=tmp_path, **quiet)
    try:
        study = tmp_path / "study.yaml"
        study.write_text("study: there\nplatform: bare\nworkload: 'null'\nprobes: [cpu]\nrepeat: 1\n")
        until(lambda: _listens(int(port)), "the scheduler listens", 60)
        time.sleep(5)  # the worker comes up
        argv = [sys.executable, "-m", "tare.cli", "run", str(study), "--cluster", address, "-o", str(tmp_path / "out")]
        said = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False)
    finally:
        for child in (worker, scheduler):
            child.kill()
            child.wait()
    assert said.returncode == 0, said.stderr
    assert "is not encrypted" in said.stderr
    with Store.open(tmp_path / "out") as store:
        assert [record.settings["device"] for record in store.records()] == ["board"]


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
