"""A real Slurm on this one machine (munged, slurmctld, slurmd), and a study on its node by `--fleet slurm`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from without_report import TARE

from sshd_devices import until
from tare.records.store import Store

pytestmark = pytest.mark.machine("slurm", "root", "runc")

NODE = os.uname().nodename.partition(".")[0]
CONFIG = """
ClusterName=tare
SlurmctldHost={node}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=sched_min_interval=0
NodeName={node} NodeAddr=127.0.0.1 CPUs={cores} CoresPerSocket={cores} RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes={node} Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(count: int) -> list[int]:
    lines = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [line.getsockname()[1] for line in lines]
    for line in lines:
        line.close()
    return ports


@pytest.fixture
def slurm() -> Iterator[dict[str, str]]:
    """The variables by which its programs find it. Under /tmp: the path of munge's socket must be short."""
    folder = Path(tempfile.mkdtemp(prefix="tare-slurm-", dir="/tmp"))
    folder.chmod(0o755)
    (folder / "spool").mkdir()
    (folder / "state").mkdir()
    key = folder / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    controller, daemon = free_ports(2)
    cores = os.cpu_count() or 1
    text = CONFIG.format(folder=folder, node=NODE, controller=controller, daemon=daemon, cores=cores)
    (folder / "slurm.conf").write_text(text)
    environ = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "TARE_STATE": str(folder / "tare")}
    munge = [f"--{word}={folder}/{name}" for word, name in (("key-file", "key"), ("socket", "munge.sock"))]
    munge += [f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/seed", "--foreground", "--force"]
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str) -> None:
        with (folder / f"{argv[0]}.out").open("wb") as out:
            started.append(subprocess.Popen(argv, env=environ, stdout=out, stderr=out, stdin=subprocess.DEVNULL))

    def idle() -> bool:
        listed = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environ, capture_output=True, text=True, check=False)
        return listed.stdout.strip() == "idle"

    try:
        start("munged", *munge)
        until((folder / "munge.sock").exists, "munged is up", 30)
        start("slurmctld", "-D", "-c")
        start("slurmd", "-D", "-c")
        until(idle, "the node is idle", 60)
        yield environ
    finally:
        for child in reversed(started):
            child.terminate()
        for child in started:
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.turns(2, 1)
def test_a_study_runs_on_a_node_and_every_place_has_the_cores_of_the_job(slurm, tmp_path):
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one core is all that there is: a job cannot have fewer.")
    look = "import os; print(len(os.sched_getaffinity(0)))"
    study = tmp_path / "study.yaml"
    work = f"{{command: {{argv: [{sys.executable}, -c, '{look}']}}}}"
    study.write_text(f"study: slurmed\nplatform: runc\nrepeat: 1\nworkload: {work}\n")
    argv = [*TARE, "run", str(study), "--fleet", "slurm", "--trust", "-o", str(tmp_path / "out")]
    environ = slurm | {"DASK_JOBQUEUE__SLURM__CORES": "1"}

    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode in (0, 1), done.stderr  # 1: beside other tests a trial may be disturbed
    left = subprocess.run(["squeue", "-h"], env=environ, capture_output=True, text=True, check=True)
    assert left.stdout == ""  # its job has gone with the run
    with Store.open(tmp_path / "out") as store:
        found = list(store.records())
        assert {record.settings["device"] for record in found} == {NODE}, done.stderr
        assert {record.facts["place"]["usable_cores"] for record in found} == {1.0}
        trials = sorted((tmp_path / "out" / "trials").iterdir())
        assert {(trial / "out.txt").read_text() for trial in trials} == {"1\n"}


def test_a_node_that_is_not_there_is_refused_before_anything_is_submitted(slurm, tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text("study: nowhere\nplatform: bare\nworkload: 'null'\nrepeat: 1\n")
    argv = [*TARE, "run", str(study), "--fleet", "slurm", "--on", "n42", "--trust", "-o", str(tmp_path / "out")]

    done = subprocess.run(argv, env=slurm, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 2, done.stderr
    assert f"Slurm has no node 'n42'. Nodes: {NODE}." in done.stderr
