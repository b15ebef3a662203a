"""Stand-ins for the machine, shipped so that the parts of others can be tested the same way as ours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from tare.base.host import Completed, Exit, InsideClock, Job, Process, Scope


class FakeClock:
    """Time that passes only when someone sleeps, or when a test says so."""

    def __init__(self, now_ns: int = 1_000_000_000) -> None:
        self.ns = now_ns

    def now_ns(self) -> int:
        return self.ns

    def sleep_until(self, t_ns: int) -> None:
        self.ns = max(self.ns, t_ns)

    def advance(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)


@dataclass
class FakeProcess:
    exit: Exit
    killed: bool = False

    def wait(self, limit_s: float) -> Exit:
        return self.exit

    def kill(self) -> None:
        self.killed = True


Answer = Callable[[Sequence[str]], Completed | None]


@dataclass
class FakeHost:
    """A host made of a dict of files and a list of answers; `asked` and `log` say what was done to it, in order."""

    files: dict[str, str] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)  # first word of a command -> its output
    answer: Answer | None = None  # for anything that `answers` cannot say
    exit: Exit = field(default_factory=lambda: Exit(code=0, seconds=1.0))
    name: str = "fake"
    python: str = sys.executable
    clock: FakeClock = field(default_factory=FakeClock)
    scope_value: Scope = field(default_factory=lambda: Scope(pid=1))
    asked: list[tuple[str, ...]] = field(default_factory=list)
    spawned: list[Job] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    closed: bool = False

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        self.asked.append(tuple(argv))
        self.log.append(f"run {' '.join(argv)}")
        if self.answer is not None and (said := self.answer(argv)) is not None:
            return said
        if argv[0] in self.answers:
            return Completed(tuple(argv), 0, self.answers[argv[0]], "")
        return Completed(tuple(argv), 127, "", f"{argv[0]}: not on this fake host")

    def spawn(self, job: Job) -> Process:
        self.spawned.append(job)
        self.log.append(f"spawn {' '.join(job.argv)}")
        return FakeProcess(self.exit)

    def read(self, path: PurePath | str) -> str:
        try:
            return self.files[str(path)]
        except KeyError:
            raise FileNotFoundError(str(path)) from None

    def write(self, path: PurePath | str, text: str) -> None:
        if str(path) not in self.files:
            raise FileNotFoundError(str(path))
        self.log.append(f"write {path} {text.strip()}")
        self.files[str(path)] = text

    def scope(self) -> Scope:
        return self.scope_value

    def close(self) -> None:
        self.log.append(f"close {self.name}")
        self.closed = True


@dataclass
class FakeInnerHost(FakeHost):
    """A fake host as a platform makes them."""

    facts: dict[str, Any] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    guest_clock: InsideClock | None = None
    shares_workdir: bool = True
