"""Containers of gVisor, which answers system calls itself instead of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from tare.base.host import Completed, Exit, Host, Job, Process
from tare.base.rulings import Ruling, obstacle
from tare.drivers.cgroups.job import KILL_ALL, Group, Sandbox
from tare.drivers.containers.oci import Bundle, OciContainer, Runtime, RuntimePlace

_RUNTIME_FAILED = 128  # what runsc says of itself; of a command it says the command's own code
_NOT_STARTED = "executing processes for container"
_LOST = "waiting on pid"  # how it ends when the whole kernel went away under a command
_NO_SUCH_COMMAND, _KILLED = 127, 137  # as a shell says it


class Gvisor(OciContainer):
    """Run in gVisor (runsc): a kernel in user space between the workload and the device's.

    The device sees one process for all that runs inside: faults and switches that are counted inside are gVisor's, and
    past its memory limit the whole container dies. `image` is the folder of an unpacked root file system.
    """

    why_no_turns: ClassVar[str | None] = "has a kernel and clocks of its own"

    intercept: Literal["ptrace", "systrap", "kvm"] | None = None
    """How system calls are caught: what runsc calls its platform; its own choice by default."""

    @classmethod
    def runtime(cls) -> Runtime:
        # Without a network of its own there is none; and the device's files are only read.
        return Runtime("runsc", "runsc", ("--network=none", "--overlay=false"), own_root=True)

    def obstacles(self, host: Host) -> list[Ruling]:
        passed = (
            [obstacle("needs.gpu", "a GPU is not handed on to gVisor: take docker, podman or runc for it.")]
            if self.gpu
            else []
        )
        return [*super().obstacles(host), *passed]

    def own_runtime(self) -> Runtime:
        plain = self.runtime()
        flags = tuple(flag.replace("--network=none", f"--network={self.network}") for flag in plain.flags)
        chosen = () if self.intercept is None else (f"--platform={self.intercept}",)
        return replace(plain, flags=(*flags, *chosen))

    def place(self, host: Host, name: str, group: Group, bundle: str, made: Bundle) -> RuntimePlace:
        runtime = self.own_runtime().found(host)
        kill = (*runtime.argv(name), "exec", name, "/bin/sh", "-c", KILL_ALL)
        sandbox = Sandbox(group.host, group.folders, group.keeper, kill)
        return SandboxPlace(host, name, sandbox, bundle, made, runtime)


class SandboxPlace(RuntimePlace):
    """A running container of gVisor: a host with a kernel of its own."""

    def __init__(self, host: Host, name: str, sandbox: Sandbox, bundle: str, made: Bundle, runtime: Runtime) -> None:
        super().__init__(host, name, sandbox, bundle, made, runtime)
        self._sandbox = sandbox

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        done = super().run(argv, limit_s=limit_s, stdin=stdin)
        return replace(done, code=_code(self._sandbox, done.code, done.err))

    def spawn(self, job: Job) -> Process:
        return SandboxProcess(super().spawn(job), self._sandbox)


class SandboxProcess:
    """A job in gVisor, whose ending is told as on the other platforms."""

    def __init__(self, inner: Process, sandbox: Sandbox) -> None:
        self._inner = inner
        self._sandbox = sandbox

    def wait(self, limit_s: float) -> Exit:
        ended = self._inner.wait(limit_s)
        return replace(ended, code=_code(self._sandbox, ended.code, ended.err))

    def kill(self) -> None:
        self._inner.kill()


def _code(sandbox: Sandbox, code: int, err: str) -> int:
    """runsc's own failure in a shell's words: a command that is not there, or one that died with its whole kernel."""
    if code != _RUNTIME_FAILED:
        return code
    if _LOST in err or not sandbox.lives():
        return _KILLED
    return _NO_SUCH_COMMAND if _NOT_STARTED in err else code
