"""dask as a fleet uses it: who may speak to it, where it listens, and a cluster that someone else runs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from without_report import TARE

from sshd_devices import until
from tare.base.errors import TareError
from tare.fleet.cluster import OwnCluster, PendingQuestion, ThereCluster, WorkerLost
from tare.fleet.exchange import Questions
from tare.fleet.inventory import Device
from tare.records.store import Store

pytestmark = pytest.mark.machine("distributed")


@pytest.fixture(scope="module")
def cluster():
    made = OwnCluster(["one", "two"])
    yield made
    made.close()
    assert not made.folder.exists()


def asks_who() -> Callable[[], tuple[str, int]]:
    def who_am_i() -> tuple[str, int]:
        from distributed import get_worker

        return get_worker().name, os.getpid()

    return who_am_i  # made here, so that it travels whole: workers cannot import a test


who_am_i = asks_who()


def until_over(cluster: OwnCluster | ThereCluster, wanted: set[PendingQuestion]) -> None:
    """Until all of these are over."""
    end_s = time.monotonic() + 60
    while wanted:
        assert time.monotonic() < end_s
        wanted = wanted - set(cluster.over(1))


def test_a_question_is_answered_by_the_worker_of_that_name_and_by_no_other(cluster):
    for name in ("one", "two", "one"):
        asked = cluster.submit(name, f"name-{name}-{time.monotonic_ns()}", who_am_i)
        assert asked.future.result(timeout=30) == (name, cluster.pids[name])


def test_a_worker_has_one_thing_to_do_at_a_time(cluster):
    start_s = time.monotonic()
    asked = [cluster.submit("one", f"nap-{number}", time.sleep, 0.5) for number in range(3)]
    until_over(cluster, set(asked))
    assert time.monotonic() - start_s >= 1.5


def test_workers_of_one_process_do_not_wait_for_each_other(cluster, tmp_path):
    assert cluster.pids["one"] == cluster.pids["two"]
    meet = 'touch "$0/$1"; for _ in $(seq 300); do [ -e "$0/$2" ] && exit; sleep 0.1; done; exit 1'
    asked = [
        cluster.submit(own, f"meet-{own}", subprocess.check_call, ["sh", "-c", meet, str(tmp_path), own, other])
        for own, other in (("one", "two"), ("two", "one"))
    ]
    until_over(cluster, set(asked))
    assert [question.future.result() for question in asked] == [0, 0]


def test_a_process_that_is_killed_is_told_at_once_and_what_it_was_at_runs_nowhere_else(cluster, tmp_path):
    traces, before = tmp_path / "traces", cluster.pids
    long = {
        name: cluster.submit(
            name, f"long-{name}", subprocess.check_call, ["sh", "-c", f"echo ran >> {traces}; sleep 10"]
        )
        for name in ("one", "two")
    }
    until(lambda: traces.exists() and traces.read_text().count("\n") == 2, "both run")
    os.kill(before["two"], 9)
    until_over(cluster, set(long.values()))
    for name, asked in long.items():
        with pytest.raises(WorkerLost):
            cluster.result(asked)
        cluster.replace(asked)  # of which the second finds that there is nothing left to do
        after = cluster.submit(name, f"after-{name}", who_am_i)
        assert after.future.result(timeout=30) == (name, cluster.pids[name])
    assert cluster.pids["one"] == cluster.pids["two"] != before["two"]
    assert traces.read_text().count("\n") == 2


def test_what_is_asked_of_a_process_that_is_dead_already_is_lost_and_not_waited_for(cluster):
    os.kill(cluster.pids["one"], 9)
    time.sleep(0.5)  # the scheduler has noticed: it has no worker of that name any more
    asked = cluster.submit("one", "too-late", who_am_i)
    until_over(cluster, {asked})
    with pytest.raises(WorkerLost):
        cluster.result(asked)
    cluster.replace(asked)
    assert cluster.submit("one", "in-time", who_am_i).future.result(timeout=30) == ("one", cluster.pids["one"])


def hostile(what: str, made: str) -> Callable[..., Any]:
    """What a worker could do instead of asking its device; made here, so that it travels whole."""

    def driving(fields: object, question: object, patience_s: float) -> Any:
        class Attack(Exception):
            def __reduce__(self) -> Any:
                return (exec, (f"import os; open('{made}/' + str(os.getpid()), 'w')",))

        if what == "raised":
            raise Attack("x")
        if what == "ended":
            raise SystemExit(3)
        said = {"code": Attack(), "bytes": {"endings": [{"claim": b"x"}]}, "shape": []}[what]
        return {"ended": "answered", "said": said, "broken": []}

    return driving


@pytest.mark.parametrize("what", ["code", "raised", "ended", "bytes", "shape"])
def test_code_and_nonsense_from_a_worker_are_its_own_trouble(cluster, tmp_path, capfd, what):
    """Over the wire, as `tare run --cluster` hears it."""
    questions = Questions(cluster, 5.0, hostile(what, str(tmp_path)))
    one = Device(name="one", address="one.example")
    asked = questions.ask(one, {}, what)
    until_over(cluster, {asked})
    answer = questions.answer(one, asked)
    assert answer["ended"] in ("refused", "worker lost"), answer
    assert not (tmp_path / str(os.getpid())).exists()  # a worker may do to itself what it likes
    after = cluster.submit("two", f"after-{what}", who_am_i)
    assert after.future.result(timeout=30)[0] == "two"
    assert "Traceback" not in "".join(capfd.readouterr())


def test_everything_listens_on_loopback_only(cluster):
    ours = {*cluster.pids.values(), cluster.scheduler_pid}
    inodes = {str(path.readlink()) for pid in ours for path in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [line.split() for file in ("tcp", "tcp6") for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
    assert len(listening) >= 4  # the scheduler, its health page, two workers
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
        from distributed import Client

        with Client(address, timeout=60) as client:
            client.wait_for_workers(1, timeout=60)
        argv = [*TARE, "run", str(study), "--cluster", address, "-o", str(tmp_path / "out")]
        said = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False)
    finally:
        for child in (worker, scheduler):
            child.kill()
            child.wait()
    assert said.returncode == 0, said.stderr
    with Store.open(tmp_path / "out") as store:
        (trial,) = store.states()
        # Beside other tests an attempt may be disturbed, and the trial tried again: it is one trial all the same.
        assert {(record.trial, record.settings["device"]) for record in store.records()} == {(trial, "board")}


def test_a_worker_of_someones_cluster_that_dies_is_told_of_and_not_waited_for(tmp_path):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    places = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
    dask, file = [sys.executable, "-m", "dask"], tmp_path / "scheduler.json"
    words = ["--resources", "device=1", "--no-nanny", "--nthreads", "1", "--scheduler-file", str(file)]
    scheduler = subprocess.Popen([*dask, "scheduler", *places, "--port", "0", "--scheduler-file", str(file)], **quiet)
    workers = [subprocess.Popen([*dask, "worker", *places, *words, "--name", name], **quiet) for name in ("one", "two")]
    try:
        until(lambda: file.exists() and file.stat().st_size, "the scheduler is up", 60)
        cluster = ThereCluster(json.loads(file.read_text())["address"])
        until(lambda: cluster.names() == ["one", "two"], "the workers are there", 60)
        traces = tmp_path / "traces"
        nap = ["sh", "-c", f"echo ran >> {traces}; sleep 8"]
        first, second = (cluster.submit(name, f"nap-{name}", subprocess.check_call, nap) for name in ("one", "two"))
        until(lambda: traces.exists() and traces.read_text().count("\n") == 2, "both run", 30)
        workers[0].kill()
        until_over(cluster, {first, second})
        with pytest.raises(WorkerLost):
            cluster.result(first)
        assert cluster.result(second) == 0  # the other one has not noticed
        with pytest.raises(TareError, match="not ours to start again"):
            cluster.replace(first)
        late = cluster.submit("one", "too-late", who_am_i)
        until_over(cluster, {late})
        with pytest.raises(WorkerLost):
            cluster.result(late)
        cluster.close()
    finally:
        for child in (*workers, scheduler):
            child.kill()
            child.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
