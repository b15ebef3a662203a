"""A real Slurm on this one machine (munged, slurmctld, two slurmd), and studies on its nodes by `--fleet slurm`."""

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

HOST = os.uname().nodename.partition(".")[0]
NODES = ("one", "two")  # both are this machine
CONFIG = """
ClusterName=tare
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
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
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=sched_min_interval=0
PartitionName=main Nodes={nodes} Default=YES MaxTime=INFINITE State=UP
"""
A_NODE = """NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} CoresPerSocket={cores} \
RealMemory=1000 State=UNKNOWN
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
    for name in ("state", *(f"spool.{node}" for node in NODES)):
        (folder / name).mkdir()
    key = folder / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    controller, *daemons = free_ports(1 + len(NODES))
    cores = os.cpu_count() or 1
    lines = [
        A_NODE.format(node=node, host=HOST, port=port, cores=cores) for node, port in zip(NODES, daemons, strict=True)
    ]
    text = CONFIG.format(folder=folder, host=HOST, controller=controller, nodes=",".join(NODES)) + "".join(lines)
    (folder / "slurm.conf").write_text(text)
    environ = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "TARE_STATE": str(folder / "tare")}
    munge = [f"--{word}={folder}/{name}" for word, name in (("key-file", "key"), ("socket", "munge.sock"))]
    munge += [f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/seed", "--foreground", "--force"]
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str) -> None:
        with (folder / f"{argv[0]}.out").open("ab") as out:
            started.append(subprocess.Popen(argv, env=environ, stdout=out, stderr=out, stdin=subprocess.DEVNULL))

    def idle() -> bool:
        listed = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environ, capture_output=True, text=True, check=False)
        return listed.stdout.strip() == "idle"

    try:
        start("munged", *munge)
        until((folder / "munge.sock").exists, "munged is up", 30)
        start("slurmctld", "-D", "-c")
        for node in NODES:
            start("slurmd", "-N", node, "-D", "-c")
        until(idle, "the nodes are idle", 60)
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


@pytest.mark.deep
def test_nodes_run_when_their_jobs_do_on_the_cores_of_the_job_and_one_whose_job_ends_gets_another(slurm, tmp_path):
    """The second node is another job's at first: it holds up no trial of the first, joins later, and loses its job."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one core is all that there is: a job cannot have fewer.")
    study, said, ledger = tmp_path / "study.yaml", tmp_path / "said.txt", tmp_path / "out" / "fleet.jsonl"
    look = "import os, time; print(len(os.sched_getaffinity(0))); time.sleep(1)"
    work = f"{{command: {{argv: [{sys.executable}, -c, '{look}']}}}}"
    study.write_text(f"study: slurmed\nplatform: runc\nrepeat: 1\nworkload: {work}\n")
    on = [word for node in NODES for word in ("--on", node)]
    argv = [*TARE, "run", str(study), "--fleet", "slurm", *on, "--trust", "-o", str(tmp_path / "out")]
    environ = slurm | {"DASK_JOBQUEUE__SLURM__CORES": "1"}

    def answer(*words: str) -> str:
        return subprocess.run(words, env=slurm, capture_output=True, text=True, check=True).stdout.strip()

    def has_begun(node: str) -> bool:
        return any('"try"' in line and f'"{node}"' in line for line in ledger.read_text().splitlines())

    other = answer("sbatch", "--parsable", "--nodelist=two", "--exclusive", "-o/dev/null", "--wrap=sleep 300")
    with said.open("w") as out, subprocess.Popen(argv, env=environ, stdout=out, stderr=out) as run:
        try:
            until(lambda: "] one: " in said.read_text(), "the first node has run its trial", 150)
            assert answer("squeue", "-h", "--name=tare-two", "-o%T") == "PENDING", said.read_text()
            assert run.poll() is None
            answer("scancel", other)
            until(lambda: has_begun("two"), "the second runs its trial", 90)
            answer("scancel", "--name=tare-two")
            run.wait(150)
        finally:
            run.terminate()

    assert run.returncode in (0, 1), said.read_text()  # 1: beside other tests a trial may be disturbed
    assert "two: its Slurm job has ended; another one is submitted." in said.read_text()
    assert answer("squeue", "-h") == ""  # its jobs have gone with the run
    with Store.open(tmp_path / "out") as store:
        ended = [record for record in store.records() if record.end_ns]
        assert {record.settings["device"] for record in ended} == set(NODES), said.read_text()
        assert {record.facts["place"]["usable_cores"] for record in ended if "place" in record.facts} == {1.0}
    printed = [path.read_text() for path in (tmp_path / "out" / "trials").glob("*/out.txt")]
    assert set(printed) - {""} == {"1\n"}


def test_a_node_that_is_not_there_is_refused_before_anything_is_submitted(slurm, tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text("study: nowhere\nplatform: bare\nworkload: 'null'\nrepeat: 1\n")
    argv = [*TARE, "run", str(study), "--fleet", "slurm", "--on", "n42", "--trust", "-o", str(tmp_path / "out")]

    done = subprocess.run(argv, env=slurm, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 2, done.stderr
    assert "Slurm has no node 'n42'. Nodes: one, two." in done.stderr
