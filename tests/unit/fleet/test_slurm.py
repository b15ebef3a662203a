"""Nodes of Slurm as devices: which are taken, and what their jobs are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.base.errors import ObstacleError, StudyError
from tare.fleet import slurm
from tare.fleet.slurm import Node, SlurmCluster, chosen, job_options, nodes

LISTING = "n1|64|idle\nn2|64|mixed\nn1|64|idle\nbroken\n"


def test_a_node_of_two_partitions_is_one_device():
    assert nodes(LISTING) == {"n1": Node("n1", 64, "idle"), "n2": Node("n2", 64, "mixed")}


def test_nodes_are_named_unless_there_is_only_one():
    known = nodes(LISTING)

    assert [node.name for node in chosen(known, ["n2", "n1", "n2"])] == ["n2", "n1"]
    assert [node.name for node in chosen({"n1": known["n1"]}, [])] == ["n1"]
    with pytest.raises(StudyError, match=r"with --on NODE.*n1, n2"):
        chosen(known, [])
    with pytest.raises(StudyError, match="no node 'n3'"):
        chosen(known, ["n3"])


def test_without_a_number_of_cores_a_job_has_its_node_for_itself():
    whole = job_options(Node("n1", 64, "idle"), {"cores": None}, Path("/shared"))
    part = job_options(Node("n1", 64, "idle"), {"cores": 4, "memory": "8 GB"}, Path("/shared"))

    assert (whole["cores"], whole["job_mem"]) == (64, "0")
    assert whole["job_extra_directives"] == ["--nodelist=n1", "--exclusive"]
    assert (part["cores"], part["memory"], part["job_mem"]) == (4, "8 GB", None)
    assert part["job_extra_directives"] == ["--nodelist=n1"]


def test_each_node_has_a_state_of_its_own_though_they_may_share_a_home(monkeypatch):
    monkeypatch.setenv("TARE_STATE", "/home/ada/a state")
    prologue = job_options(Node("n1", 64, "idle"), {}, Path("/shared"))["job_script_prologue"]

    assert "export TARE_STATE='/home/ada/a state/slurm/n1'" in prologue


def test_the_script_that_dask_jobqueue_makes_of_it_has_one_worker_that_is_a_device():
    jobqueue = pytest.importorskip("dask_jobqueue.slurm", reason="there is no dask-jobqueue in this Python.")
    settings = {"queue": "gpu", "job-extra-directives": ["--gres=gpu:1"]}
    options = job_options(Node("n1", 64, "idle"), settings, Path("/tmp"))

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
