"""Nodes of a Slurm cluster as the devices of a run: a job of dask-jobqueue for each, with a worker in it.

What jobs are asked for (partition, account, time) are dask-jobqueue's own settings: `jobqueue.slurm` in dask's
configuration, or variables like DASK_JOBQUEUE__SLURM__QUEUE. Without `cores` there a job has its node for itself.
"""

from __future__ import annotations

import asyncio
import math
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.base.errors import ObstacleError, StudyError, TareError
from tare.base.files import new_folder, state_dir
from tare.base.installed import pip_install
from tare.fleet.cluster import NOWHERE, PendingQuestion, SchedulerGone, ThereCluster
from tare.fleet.clusters import is_loopback
from tare.fleet.dask_processes import TUNED, Host, Processes, allow_many_files
from tare.fleet.data_only import refuse_code
from tare.studies.yaml import listed, suggestion

WORD = "slurm"
_INSTALL = "jobs of Slurm are made by dask-jobqueue: `{}`."
_NO_SLURM = "there is no {} here: --fleet slurm runs where jobs are submitted, on a login node of the cluster."
_LOOK_EVERY_S = 1.0
UNKNOWN = "squeue does not answer"
_NOTE_EVERY_S = 60.0
_WITHIN_S = 60.0
_ASK_SLURM_EVERY_S = 5.0
_SQUEUE_WITHIN_S = 5.0  # the other nodes wait for as long
_TO_COME = "to come"  # in the place of the address of a worker
_ENDED = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
)
_PROGRAMS = ("sbatch", "scancel", "sinfo", "squeue")


@dataclass(frozen=True)
class Node:
    """A node, as `sinfo` lists it."""

    name: str
    cores: int
    state: str
    address: str


_LISTED = "%N|%c|%T|%o"


def nodes(listing: str) -> dict[str, Node]:
    """Of `sinfo --Node --format` with what is listed above; a node of several partitions has several lines."""
    rows = [line.split("|") for line in listing.splitlines() if line.count("|") == _LISTED.count("|")]
    return {name: Node(name, int(count), state, address) for name, count, state, address in rows if count.isdecimal()}


def chosen(known: Mapping[str, Node], names: Sequence[str]) -> list[Node]:
    """The nodes of these names; without any the only one there is."""
    for name in names:
        if name not in known:
            raise StudyError(
                f"Slurm has no node {name!r}. Nodes: {listed(list(known))}.{suggestion(name, list(known))}"
            )
    if names:
        return [known[name] for name in dict.fromkeys(names)]
    if len(known) != 1:
        raise StudyError(
            f"--fleet slurm: name the nodes to run on with --on NODE; each runs the whole study. "
            f"Nodes: {listed(list(known)) or 'none'}."
        )
    return list(known.values())


def job_options(node: Node, settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What dask-jobqueue is told for the job of one node; `settings` are its own, `jobqueue.slurm`."""
    whole = settings.get("cores") is None
    directives = [f"--nodelist={node.name}", *(["--exclusive"] if whole else [])]
    state = shlex.quote(f"{state_dir()}/slurm/{node.name}")
    quiet = ["--resources", "device=1", "--nthreads", "1", "--memory-limit", "0", "--no-dashboard"]
    return {
        "name": node.name,
        "job_name": f"tare-{node.name}",
        "cores": node.cores if whole else settings["cores"],
        "processes": 1,
        "nanny": False,
        "protocol": "tls",
        "memory": settings.get("memory") or "1 GiB",  # of dask's own account: what a trial uses is not its concern
        "job_mem": settings.get("job-mem") or ("0" if whole or not settings.get("memory") else None),
        "python": shlex.quote(sys.executable),
        "local_directory": str(folder / "scratch"),
        "log_directory": str(folder),
        "worker_extra_args": [*quiet, *settings.get("worker-extra-args", ())],
        "job_extra_directives": [*directives, *settings.get("job-extra-directives", ())],
        # Nodes may share the folders of their users, and each has a state of its own.
        "job_script_prologue": [
            *(f"export {name}={value}" for name, value in TUNED.items()),
            f"export TARE_STATE={state}",
            *settings.get("job-script-prologue", ()),
        ],
    }


class SlurmCluster(ThereCluster):
    """A scheduler here, and a worker on each of these nodes, in a job that ends with this run."""

    def __init__(self, names: Sequence[str], note: Callable[[str], None]) -> None:
        for program in _PROGRAMS:
            if shutil.which(program) is None:
                raise ObstacleError(_NO_SLURM.format(program))
        try:
            import distributed
            from dask_jobqueue.slurm import SLURMJob
        except ImportError as error:
            raise ObstacleError(_INSTALL.format(pip_install("slurm"))) from error
        import dask.config

        super().__init__(None)
        self._job, self._note = SLURMJob, note
        self._settings: Mapping[str, Any] = dask.config.get("jobqueue.slurm")
        queue = self._settings.get("queue")
        listing = _run(
            "sinfo", "--noheader", "--Node", f"--format={_LISTED}", *([f"--partition={queue}"] if queue else [])
        )
        self._nodes = {node.name: node for node in chosen(nodes(listing), names)}
        self._jobs: dict[str, Any] = {}
        # Nodes whose workers are still to come, each with the questions to be sent then; and why others never came.
        self._queue: dict[str, list[tuple[PendingQuestion, Callable[[], Any]]]] = {}
        self._failed: dict[str, str] = {}
        self._asked_slurm_s, self._noted_s = -math.inf, time.monotonic()
        address = own_address(self._settings.get("interface"), [node.address for node in self._nodes.values()])
        refuse_code()
        allow_many_files()
        shared = self._settings.get("shared-temp-directory")
        # Keys and logs lie where the nodes see them: by default in the user's own folder, which clusters share.
        folder = new_folder("fleet", Path(shared) if shared else _shared_folder())
        self._processes = Processes(folder, address)
        try:
            self._client = distributed.Client(self._processes.address, security=self._processes.security())
            for node in self._nodes.values():
                self._submit(node)
            self._await_first()
        except BaseException:
            self.close()
            raise

    def names(self) -> list[str]:
        return sorted(self._nodes)

    def queued(self) -> Collection[str]:
        return self._queue.keys()

    def replace(self, pending: PendingQuestion) -> None:
        """Another job on the same node: the one before ended, by its time limit or by an operator.

        It may wait for hours, and the other nodes go on meanwhile: what is asked of this one is answered when it runs.
        """
        asyncio.run(self._jobs.pop(pending.name).close())
        if pending.name in self._failed:  # the next one would fare no better
            raise TareError(self._failed.pop(pending.name))
        self._note(f"{pending.name}: its Slurm job has ended; another one is submitted.")
        self._submit(self._nodes[pending.name])
        self._looked_s = -math.inf

    def check(self) -> None:
        if self._processes.scheduler.poll() is not None:
            raise SchedulerGone

    def close(self) -> None:
        with ExitStack() as stack:  # one that cannot be cancelled leaves neither the others nor the keys
            stack.callback(self._processes.close)
            stack.callback(self._leave)
            for job in self._jobs.values():
                stack.callback(_cancel, job)

    def _submit(self, node: Node) -> None:
        options = job_options(node, self._settings, self._processes.folder)
        job = self._job(self._processes.address, security=self._processes.security(), **options)
        try:
            asyncio.run(job.start())
        except RuntimeError as error:
            printed = str(error).rpartition("stderr:")[2].strip()  # by sbatch, of all that dask-jobqueue reports
            raise ObstacleError(f"{node.name}: Slurm takes no job for it: {printed or str(error).strip()}") from None
        self._jobs[node.name] = job
        self._queue[node.name] = []

    def _await_first(self) -> None:
        """Until the first worker is there; jobs may wait in the queue for as long as it takes."""
        while len(self._queue) == len(self._nodes):
            time.sleep(_LOOK_EVERY_S)
            self.check()
            self._looked_s = -math.inf
            self._look_at_queue()
            for sentence in self._failed.values():
                raise TareError(sentence)

    def _send(self, pending: PendingQuestion, send: Callable[[], Any]) -> None:
        """Kept until its worker is there: dask takes the name of one that it does not know for the name of a host."""
        if (kept := self._queue.get(pending.name)) is None:
            super()._send(pending, send)
        else:
            pending.host = _TO_COME
            kept.append((pending, send))

    def _dead_hosts(self) -> set[Host | str | None]:
        self._look_at_queue()
        return super()._dead_hosts() - {_TO_COME}

    def _look_at_queue(self) -> None:
        """Who has come of those that are waited for, and whose job has ended; the rest is noted now and then."""
        if not self._queue:
            return
        workers, now_s = self._now(), time.monotonic()
        for name in [name for name in self._queue if name in workers]:
            for pending, send in self._queue.pop(name):
                self._send(pending, send)
        if self._queue and now_s - self._asked_slurm_s > _ASK_SLURM_EVERY_S:
            self._asked_slurm_s = now_s
            jobs = {name: str(self._jobs[name].job_id) for name in self._queue}
            states = _states(list(jobs.values()))
            self._take_states({name: states.get(job, UNKNOWN) for name, job in jobs.items()}, now_s)

    def _take_states(self, states: Mapping[str, str], now_s: float) -> None:
        for name in [name for name, state in states.items() if not state]:
            self._failed[name] = f"{name}: its Slurm job ended before a worker was there:\n{self._last_words(name)}"
            for pending, _ in self._queue.pop(name):
                pending.host = NOWHERE
        if self._queue and now_s - self._noted_s > _NOTE_EVERY_S:
            self._noted_s = now_s
            waiting = ", ".join(f"{name} ({states[name]})" for name in self._queue)
            self._note(f"waiting for Slurm: {waiting}; each node joins when its job starts.")

    def _last_words(self, name: str) -> str:
        logs = sorted(self._processes.folder.glob(f"tare-{name}-*.err"))
        return logs[-1].read_text(errors="replace")[-1000:] if logs else "it left no log."


def _cancel(job: Any) -> None:
    asyncio.run(job.close())


def _run(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
    except subprocess.TimeoutExpired:
        raise ObstacleError(f"`{' '.join(argv)}` did not answer within {_WITHIN_S:.0f} s.") from None
    if done.returncode != 0:
        raise ObstacleError(f"`{' '.join(argv)}` failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def _states(jobs: Sequence[str]) -> dict[str, str]:
    """As `squeue` lists them, with the reason; empty for a job that has ended, which it may not know any more."""
    argv = ["squeue", "--noheader", f"--jobs={','.join(jobs)}", "--format=%i|%T|%r"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_SQUEUE_WITHIN_S, check=False)
    except subprocess.TimeoutExpired:
        return {}
    if done.returncode != 0 and "invalid job id" not in done.stderr.lower():
        return {}
    return dict.fromkeys(jobs, "") | queue_states(done.stdout)


def queue_states(listing: str) -> dict[str, str]:
    """Of `squeue --format %i|%T|%r`; one that has ended may be listed for some minutes."""
    rows = [line.split("|", 2) for line in listing.splitlines() if line.count("|") >= 2]
    return {job: "" if state in _ENDED else f"{state} {reason}" for job, state, reason in rows}


def _shared_folder() -> Path:
    folder = state_dir() / "slurm"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def own_address(interface: str | None, nodes: Sequence[str]) -> str:
    """Where nodes at these addresses reach this machine: at the interface, at what its own name has, or as they are
    reached from here. On many machines the name has a loopback address, which is of use to themselves alone."""
    if interface:
        from distributed.utils import get_ip_interface

        return str(get_ip_interface(interface))
    name = socket.gethostname()
    try:
        named, what = socket.gethostbyname(name), ""
    except OSError as error:
        named, what = "", f"has no address ({error})"
    if named and not is_loopback(named):
        return named
    reached = [found for node in nodes if (found := _route_to(node))]
    if reached:  # all of them by loopback: the nodes are this machine
        return next((address for address in reached if not is_loopback(address)), reached[0])
    what = what or f"has the loopback address {named}, which no other machine can connect to"
    raise ObstacleError(
        f"the name of this machine, {name}, {what}. Set DASK_JOBQUEUE__SLURM__INTERFACE to the network interface that "
        "the nodes reach it by, like eth0."
    )


def _route_to(node: str) -> str:
    """The address that this machine has on the way there; nothing is sent. Empty where the node's is not known."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        try:
            line.connect((node, 9))
        except OSError:
            return ""
        return str(line.getsockname()[0])
