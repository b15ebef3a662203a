"""A running control group, and a job in it: at the time limit all of it dies, and an out-of-memory kill is noticed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, ClassVar

from tare.base.errors import ObstacleError
from tare.base.host import (
    Completed,
    Exit,
    Host,
    ImageConfig,
    InnerHost,
    Job,
    Process,
    Scope,
    Site,
    clock_inside,
    facts_of,
    shares_workdir,
)
from tare.base.rulings import Ruling, obstacle
from tare.drivers import layers
from tare.drivers.cgroups import limits, tree

OOM_NOTE = "tare: the kernel killed a process here for want of memory"
"""How people are told of an out-of-memory kill: a line at the end of `Exit.err`; `Exit.oom_killed` is for the rest."""


_GRACE_S = 10.0
_MOST_TOLD = 8  # processes
_LOOK_EVERY_S = 0.5
_LINGER_S = 2.0  # the same as on the device, where a job's output is waited for this long


@dataclass(frozen=True)
class Group:
    """The processes of one place, as the host below it sees them."""

    host: Host
    folders: Mapping[str, str] = field(default_factory=dict)
    keeper: int | None = None  # the process that keeps a container open; it is no part of any job

    @property
    def holds_jobs(self) -> bool:
        """Whether all processes of a job can be ended by it."""
        return bool(self.folders)

    def kill_jobs(self) -> None:
        """End everything but the keeper."""
        spare = () if self.keeper is None else (self.keeper,)
        tree.empty(self.host, self.folders, spare=spare, within_s=5.0)

    def alive(self, pid: int) -> bool:
        return tree.is_there(self.host, f"/proc/{pid}/stat")

    def oom_kills(self) -> int | None:
        return tree.oom_kills(self.host, self.folders)

    def waiting(self) -> str:
        """What each process of a job does or waits for now, in words, as far as the kernel tells."""
        pids = sorted(pid for pid in tree.pids(self.host, self.folders) if pid != self.keeper)
        return "; ".join(filter(None, (_what_it_does(self.host, pid) for pid in pids[:_MOST_TOLD])))


# -1 is everyone but the first process and the one that asks; again, for one may just have been forked.
KILL_ALL = "n=0; while kill -KILL -1 2> /dev/null && [ $n -lt 100 ]; do n=$((n + 1)); done"
_KILL_WITHIN_S = 5.0


@dataclass(frozen=True)
class Sandbox(Group):
    """The group of a container whose processes the host cannot list: they are ended from inside."""

    kill: Sequence[str] = field(default_factory=tuple)

    @property
    def holds_jobs(self) -> bool:
        return True

    def kill_jobs(self) -> None:
        if self.lives():
            self.host.run(self.kill, limit_s=_KILL_WITHIN_S)

    def lives(self) -> bool:
        """Whether what keeps it open runs; dead, it may wait for whoever reaps it."""
        return tree.state_of(self.host, self.keeper) not in ("Z", "X")


# What the kernel calls the place where a process sleeps, and what that means.
_SLEEPS = {
    "futex": "a lock or another thread",
    "wait_for_connect": "a network connection",
    "csk_accept": "someone to connect to it",
    "recv": "data from a socket",
    "sk_wait": "data from a socket",
    "poll": "events on files or sockets",
    "select": "events on files or sockets",
    "pipe": "a pipe",
    "wait4": "a child process",
    "do_wait": "a child process",
    "nanosleep": "a timer",
    "hrtimer": "a timer",
    "tty": "a terminal",
    "lock": "a file lock",
    "io_schedule": "a disk",
    "folio": "a disk",
}
_LONGEST_COMMAND = 80


def _what_it_does(host: Host, pid: int) -> str:
    try:
        words = host.read(f"/proc/{pid}/cmdline").split("\0")
        state = host.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]
        place = host.read(f"/proc/{pid}/wchan").strip()
    except OSError:  # it has just ended
        return ""
    if "launch.py" in "".join(words[:4]):  # ours: it waits for the job
        return ""
    command = " ".join(words).strip()[:_LONGEST_COMMAND] or f"process {pid}"
    if state == "R" or place in ("", "0"):
        return f"`{command}` {'computes' if state == 'R' else 'sleeps'}"
    meant = next((f"{words} " for part, words in _SLEEPS.items() if part in place), "")
    return f"`{command}` waits for {meant}({place})" if meant else f"`{command}` waits in {place}"


class GroupProcess:
    """A job whose children are found by their group, so that none outlives it by leaving its session.

    `main` is the job's own process, where that is not the one that `inner` waits for.
    """

    def __init__(
        self,
        inner: Process,
        group: Group,
        oom_kills_before: int | None,
        main: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._inner = inner
        self._group = group
        self._before = oom_kills_before
        self._main = main
        self._waiting = ""

    def wait(self, limit_s: float) -> Exit:
        ended_first, late = threading.Event(), threading.Event()
        watch = threading.Thread(target=self._watch, args=(limit_s, ended_first, late), daemon=True)
        watch.start()
        try:
            ended = self._inner.wait(limit_s + _GRACE_S)
        finally:
            ended_first.set()
            watch.join()
        if ended.timed_out:  # whoever brought the job in hung, and was ended
            self._group.kill_jobs()
        ended = replace(ended, timed_out=ended.timed_out or late.is_set(), waiting=self._waiting)
        return with_oom_note(ended, self._before, self._group.oom_kills())

    def _watch(self, limit_s: float, ended: threading.Event, late: threading.Event) -> None:
        """Kill the job at its limit, and what it left behind when it ends before.

        The job dies first, and then whoever brought it in (`runc exec`) ends by itself. The other way round
        nobody would be left to reap it, and the container could not be removed for seconds.
        """
        end_s = time.monotonic() + limit_s
        while not ended.wait(max(0.0, min(_LOOK_EVERY_S, end_s - time.monotonic()))):
            if time.monotonic() >= end_s:
                late.set()
                self._waiting = self._group.waiting()
                self.kill()
                return
            if self._main_is_gone() and not ended.wait(_LINGER_S):
                self._group.kill_jobs()
                return

    def _main_is_gone(self) -> bool:
        """Whether the job ended though its caller did not: a child of it holds the output open."""
        pid = self._main()
        return pid is not None and not self._group.alive(pid)

    def kill(self) -> None:
        if self._group.holds_jobs:
            self._group.kill_jobs()
        else:
            self._inner.kill()


def begun(group: Group, job: Job, main: Callable[[], int | None] = lambda: None) -> GroupProcess:
    """Start a command on the host below, which brings a job into the group."""
    before = group.oom_kills()
    return GroupProcess(group.host.spawn(job), group, before, main)


def run_in_group(group: Group, command: Sequence[str], argv: Sequence[str], *, limit_s: float, stdin: str) -> Completed:
    """Run `command`, which runs `argv` inside the group; at the limit what runs inside dies first."""
    late = threading.Event()

    def expire() -> None:
        late.set()
        group.kill_jobs()

    alarm = threading.Timer(limit_s, expire)
    alarm.daemon = True
    alarm.start()
    try:
        done = group.host.run(command, limit_s=limit_s + _GRACE_S, stdin=stdin)
    finally:
        alarm.cancel()
        alarm.join()  # a killing that still goes on would hit the next command too
    if done.code == 124:  # whoever brought the command in hung, and was ended
        group.kill_jobs()
    if late.is_set():
        return Completed(tuple(argv), 124, done.out, f"{done.err}\nended by tare: no answer within {limit_s:g} s")
    return replace(done, argv=tuple(argv))


def with_oom_note(ended: Exit, before: int | None, after: int | None) -> Exit:
    """The same ending, with a line about memory if the kernel's counter rose."""
    if after is None or after <= (before or 0):
        return ended
    times = after - (before or 0)
    note = f"{OOM_NOTE} ({'once' if times == 1 else f'{times} times'}).\n"
    return replace(ended, err=f"{ended.err.rstrip()}\n{note}".lstrip(), oom_killed=True)


# Each file gets our pid, then the job takes our place. The shell's own variables must not reach it: the
# environment of a job is the same on every platform, to the byte.
_JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 125; shift; done; shift; '
_BECOME = 'exec /usr/bin/env -u PWD -u OLDPWD -u SHLVL -u _ "$@"'


def entered(folders: Mapping[str, str]) -> tuple[str, ...]:
    """What goes before a command so that it starts inside the group; nothing where there is none."""
    return ("/bin/sh", "-c", f"{_JOIN}{_BECOME}", "tare", *_files(folders), "--") if folders else ()


def _files(folders: Mapping[str, str]) -> dict[str, None]:
    return dict.fromkeys(f"{folder}/cgroup.procs" for folder in folders.values())


@dataclass(frozen=True)
class Files:
    """The files that a job on the host itself sees: with a `root` those in there, which it enters in a namespace."""

    root: str = ""
    bound: Sequence[str] = ()  # what is bound into it: a source, its place, the next source
    image: ImageConfig | None = None  # where they are an image's
    user: tuple[int, int] = (0, 0)
    moved: Mapping[str, str] = field(default_factory=dict)  # a folder of the host's to the copy that stands for it
    facts: Mapping[str, Any] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)


class GroupPlatform(limits.Limits):
    """Runs jobs on the host itself, in a control group of their own: counted and limited as in a container."""

    why_no_turns: ClassVar[str | None] = None

    def obstacles(self, host: Host) -> list[Ruling]:
        found = limits.limit_obstacles(host, self)
        if self.asked() and not found and not may_make_groups(host):
            found.append(
                obstacle(
                    "needs.root",
                    "a limit on bare metal needs a control group, and we may not make one here: run as root, "
                    "or leave the limits away.",
                )
            )
        return found

    def make(self, host: Host, site: Site) -> InnerHost:
        with ExitStack() as stack:
            entry = self.files(host, site, stack)
            folders = self._group(host, site.name, stack)
            if not folders:
                stack.callback(tree.kill_named, host, site.name)
            return GroupHost(host, site.name, Group(host, folders), stack.pop_all(), entry)

    def files(self, host: Host, site: Site, stack: ExitStack) -> Files:
        """Which files a job sees: the host's own."""
        return Files()

    def _group(self, host: Host, name: str, stack: ExitStack) -> dict[str, str]:
        """The group's folders; none where we have no rights and no limit was asked for."""
        if not may_make_groups(host):
            if self.asked():
                raise ObstacleError("bare metal cannot be limited here.", self.obstacles(host))
            return {}
        return limited_group(host, name, self, stack)

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        folders = tree.own_folders(host, name)
        if folders:
            tree.remove(host, folders)
        tree.kill_named(host, name)
        layers.remove(host, name)


def limited_group(host: Host, name: str, asked: limits.Limits, stack: ExitStack) -> dict[str, str]:
    """The folders of a new group, which has these limits and is removed with the stack."""
    folders = tree.make(host, name)
    stack.callback(tree.remove, host, folders)
    limits.apply(host, asked, folders)
    limits.check_held(host, asked, folders)
    return folders


def may_make_groups(host: Host) -> bool:
    """Whether every hierarchy can be written to; asking changes nothing."""
    points = sorted({mount.point for key, mount in tree.hierarchies(host).items() if not key.startswith("name=")})
    script = 'for folder do [ -w "$folder" ] || exit 1; done'
    return bool(points) and host.run(["sh", "-c", script, "may", *points]).code == 0


class GroupHost:
    """A host, with everything that is started here inside one control group."""

    def __init__(self, host: Host, name: str, group: Group, made: ExitStack, files: Files = Files()) -> None:  # noqa: B008
        self.name = name
        self.clock = host.clock
        self.python = host.python
        self.facts = {**facts_of(host), **files.facts}
        self.guest_clock = clock_inside(host)
        self.shares_workdir = shares_workdir(host)
        self.phases = dict(files.phases)
        self._files = files
        self.image = files.image
        self._host = host
        self._group = group
        self._made = made

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        done = self._host.run([*self._entry("/"), *argv], limit_s=limit_s, stdin=stdin)
        return replace(done, argv=tuple(argv))

    def spawn(self, job: Job) -> Process:
        env = {**job.env, tree.NAME_VARIABLE: self.name}
        cwd = "/" if self._files.root else self._files.moved.get(job.cwd, job.cwd)
        return begun(self._group, Job((*self._entry(job.cwd), *job.argv), env, cwd))

    def _entry(self, cwd: str) -> tuple[str, ...]:
        """What goes before a command so that it starts inside the group, and among the files that it is to see."""
        if self._files.root:
            groups = _files(self._group.folders)
            alone = ("unshare", "--mount", "--propagation", "private")
            to, ids = (
                (layers.TO_VIEW, ()) if self.image is None else (layers.TO_IMAGE, tuple(map(str, self._files.user)))
            )
            script = f"{_JOIN}{layers.ENTER_VIEW}{to}{_BECOME}"
            begun = (*alone, "/bin/sh", "-c", script, "tare", *groups, "--", self._files.root, cwd)
            return (*begun, *self._files.bound, "--", *ids)
        return entered(self._group.folders)

    def read(self, path: PurePath | str) -> str:
        return self._host.read(path)

    def write(self, path: PurePath | str, text: str) -> None:
        self._host.write(path, text)

    def scope(self) -> Scope:
        if not self._group.folders:
            return self._host.scope()
        return Scope(cgroups=self._group.folders)

    def close(self) -> None:
        self._made.close()
