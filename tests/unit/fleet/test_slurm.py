"""Nodes of Slurm as devices: which are taken, and what their jobs are asked for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tare.base.errors import ObstacleError, StudyError, TareError
from tare.fleet import slurm
from tare.fleet.cluster import ThereCluster, WorkerLost
from tare.fleet.slurm import Node, SlurmCluster, chosen, job_options, nodes, own_address, queue_states

LISTING = "n1|64|idle|10.0.0.1\nn2|64|mixed|n2\nn1|64|idle|10.0.0.1\nbroken\n"
N1, N2 = Node("n1", 64, "idle", "10.0.0.1"), Node("n2", 64, "mixed", "n2")


def test_a_node_of_two_partitions_is_one_device():
    assert nodes(LISTING) == {"n1": N1, "n2": N2}


def test_nodes_are_named_unless_there_is_only_one():
    known = nodes(LISTING)

    assert [node.name for node in chosen(known, ["n2", "n1", "n2"])] == ["n2", "n1"]
    assert [node.name for node in chosen({"n1": known["n1"]}, [])] == ["n1"]
    with pytest.raises(StudyError, match=r"with --on NODE.*n1, n2"):
        chosen(known, [])
    with pytest.raises(StudyError, match="no node 'n3'"):
        chosen(known, ["n3"])


def test_without_a_number_of_cores_a_job_has_its_node_for_itself():
    whole = job_options(N1, {"cores": None}, Path("/shared"))
    part = job_options(N1, {"cores": 4, "memory": "8 GB"}, Path("/shared"))

    assert (whole["cores"], whole["job_mem"]) == (64, "0")
    assert whole["job_extra_directives"] == ["--nodelist=n1", "--exclusive"]
    assert (part["cores"], part["memory"], part["job_mem"]) == (4, "8 GB", None)
    assert part["job_extra_directives"] == ["--nodelist=n1"]


def test_each_node_has_a_state_of_its_own_though_they_may_share_a_home(monkeypatch):
    monkeypatch.setenv("TARE_STATE", "/home/ada/a state")
    prologue = job_options(N1, {}, Path("/shared"))["job_script_prologue"]

    assert "export TARE_STATE='/home/ada/a state/slurm/n1'" in prologue


def test_the_script_that_dask_jobqueue_makes_of_it_has_one_worker_that_is_a_device():
    jobqueue = pytest.importorskip("dask_jobqueue.slurm", reason="there is no dask-jobqueue in this Python.")
    settings = {"queue": "gpu", "job-extra-directives": ["--gres=gpu:1"]}
    options = job_options(N1, settings, Path("/tmp"))

    script = jobqueue.SLURMJob("tls://10.0.0.1:8786", queue="gpu", **options).job_script()

    assert {"#SBATCH --nodelist=n1", "#SBATCH --exclusive", "#SBATCH --mem=0", "#SBATCH --gres=gpu:1"} <= set(
        script.splitlines()
    )
    worker = script.splitlines()[-1]
    assert "tls://10.0.0.1:8786 --name n1" in worker
    assert "--resources device=1 --nthreads 1" in worker
    assert worker.rindex("--nthreads 1") > worker.index("--nthreads 64")  # the last one holds


def test_where_jobs_cannot_be_submitted_nothing_is_started(monkeypatch):
    monkeypatch.setattr(slurm.shutil, "which", lambda name: None)

    with pytest.raises(ObstacleError, match="there is no sbatch here"):
        SlurmCluster(["n1"], lambda text: None)


@pytest.mark.parametrize(
    ("named", "routes", "address"),
    [
        ("10.0.0.9", {}, "10.0.0.9"),
        ("127.0.1.1", {"n1": "10.0.0.9"}, "10.0.0.9"),
        ("127.0.1.1", {"n1": "127.0.0.1", "n2": "10.0.0.9"}, "10.0.0.9"),
        ("127.0.1.1", {"n1": "127.0.0.1", "n2": "127.0.0.1"}, "127.0.0.1"),  # the nodes are this machine
    ],
)
def test_workers_are_given_an_address_that_their_nodes_can_reach(monkeypatch, named, routes, address):
    monkeypatch.setattr(slurm.socket, "gethostbyname", lambda name: named)
    monkeypatch.setattr(slurm, "_route_to", lambda node: routes.get(node, ""))

    assert own_address(None, ["n1", "n2"]) == address


def test_a_loopback_address_that_no_node_could_connect_to_is_refused_with_what_to_set(monkeypatch):
    monkeypatch.setattr(slurm.socket, "gethostbyname", lambda name: "127.0.1.1")

    with pytest.raises(ObstacleError, match=r"loopback address 127\.0\.1\.1.*DASK_JOBQUEUE__SLURM__INTERFACE"):
        own_address(None, ["no-such-node.invalid"])


def test_the_way_to_a_node_has_an_address_of_this_machine():
    assert slurm._route_to("127.0.0.1") == "127.0.0.1"
    assert slurm._route_to("no-such-node.invalid") == ""


def test_a_job_that_squeue_still_lists_may_have_ended():
    listing = "7|PENDING|Resources\n8|CANCELLED|None\n9|RUNNING|a | b\nslurm_load_jobs error"

    assert queue_states(listing) == {"7": "PENDING Resources", "8": "", "9": "RUNNING a | b"}


class PretendJob:
    """What dask-jobqueue gives: each has a number, and takes no time."""

    numbers = iter(range(1, 100))

    def __init__(self, address: str, **options: object) -> None:
        self.job_id = str(next(self.numbers))

    async def start(self) -> None: ...
    async def close(self) -> None: ...


class PretendFuture:
    def cancel(self) -> None: ...


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes whose workers, and the state of whose jobs, are as `there` and `states` say."""
    made = SlurmCluster.__new__(SlurmCluster)
    ThereCluster.__init__(made, None)
    made.there, made.states, made.sent, made.notes = {"n1": "tls://n1:1"}, {}, [], []
    made._nodes, made._jobs, made._queue, made._failed, made._settings = {"n1": N1, "n2": N2}, {}, {}, {}, {}
    made._asked_slurm_s, made._noted_s, made._note, made._job = -1e9, 0.0, made.notes.append, PretendJob
    made._processes = SimpleNamespace(folder=Path("/nowhere"), address="tls://here:1", security=lambda: None)
    made._client = SimpleNamespace(
        submit=lambda *_, key, **__: made.sent.append(key) or PretendFuture(),
        loop=SimpleNamespace(add_callback=lambda *_: None),  # no answer comes
    )
    monkeypatch.setattr(made, "_now", lambda: made.there)
    monkeypatch.setattr(slurm, "_states", lambda jobs: made.states)
    monkeypatch.setattr(slurm, "_ASK_SLURM_EVERY_S", -1.0)
    return made


def test_a_question_to_a_node_in_the_queue_is_kept_until_its_worker_has_come_and_then_it_is_lost_with_it(cluster):
    cluster._submit(cluster._nodes["n2"])
    cluster.states = {cluster._jobs["n2"].job_id: "PENDING Resources"}
    for name in ("n1", "n2"):
        asked = cluster.submit(name, f"to {name}", print)

    assert (cluster.sent, list(cluster.queued()), cluster.over(0.0)) == (["to n1"], ["n2"], [])

    cluster.there = cluster.there | {"n2": "tls://n2:1"}
    assert (cluster.over(0.0), cluster.sent, list(cluster.queued())) == ([], ["to n1", "to n2"], [])

    del cluster.there["n2"]
    assert cluster.over(0.0) == [asked]
    with pytest.raises(WorkerLost):
        cluster.result(asked)
    cluster.replace(asked)  # returns at once: the next job waits in the queue
    assert list(cluster.queued()) == ["n2"]


def test_a_job_that_ends_without_a_worker_is_not_submitted_again(cluster):
    cluster._submit(cluster._nodes["n2"])
    asked = cluster.submit("n2", "to n2", print)
    cluster.states = {cluster._jobs["n2"].job_id: ""}

    assert cluster.over(0.0) == [asked]
    with pytest.raises(WorkerLost):
        cluster.result(asked)
    with pytest.raises(TareError, match="n2: its Slurm job ended before a worker was there"):
        cluster.replace(asked)
    assert not cluster.queued()


def test_a_squeue_that_does_not_answer_ends_no_job(cluster):
    cluster._submit(cluster._nodes["n2"])
    cluster.submit("n2", "to n2", print)

    assert cluster.over(0.0) == []
    assert cluster.notes == ["waiting for Slurm: n2 (squeue does not answer); each node joins when its job starts."]
