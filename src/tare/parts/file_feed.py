"""A feed that reads a handful of kernel files at each poll: most probes are a list of these files.

One file that cannot be read never costs the others: a file that is gone is lost from then on and said so once,
a value that makes no sense is counted and left out. Nothing is ever replaced by zero.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from tare.host import Host
from tare.measures import Channel
from tare.parts.protocols import Reading

_GONE = {errno.ENOENT, errno.ENODEV, errno.ESRCH, errno.ENOTDIR}
_LATER = {errno.EAGAIN, errno.EBUSY, errno.EIO}  # a sensor that sleeps with its hardware, and will be there again


class Parser(Protocol):
    """Turns the text of one file into readings of the channels that it declares."""

    @property
    def channels(self) -> tuple[Channel, ...]: ...

    def __call__(self, t_ns: int, text: str) -> list[Reading]: ...


@dataclass(frozen=True, slots=True)
class KernelFile:
    """A file, and how to read it: `parser_for` looks at its first text, so that it declares only what is there."""

    path: str
    parser_for: Callable[[str], Parser]
    slow: bool = False  # once a second and at the end is enough: it matters as a sum, or changes seldom


class FileFeed:
    """The files of one probe, while they are watched."""

    def __init__(
        self, probe: str, host: Host, files: Iterable[KernelFile], slow_period_ns: int = 1_000_000_000
    ) -> None:
        self.channels: tuple[Channel, ...] = ()
        self.lost: list[str] = []  # sentences: what could not be watched to the end
        self.errors: Counter[str] = Counter()  # file name -> reads that gave nothing usable
        self._probe, self._host, self._slow_period_ns = probe, host, slow_period_ns
        self._start_ns = self._slow_due_ns = host.clock.now_ns()
        self._each_poll: dict[str, Parser] = {}
        self._now_and_then: dict[str, Parser] = {}
        for file in files:
            self._watch(file)

    @property
    def due_ns(self) -> int:
        """Before this there is nothing to read."""
        return 0 if self._each_poll else self._slow_due_ns

    def poll(self) -> list[Reading]:
        readings = self._read(self._each_poll)
        now_ns = self._host.clock.now_ns()
        if now_ns >= self._slow_due_ns:
            self._slow_due_ns = now_ns + self._slow_period_ns
            readings += self._read_slow()
        return readings

    def close(self) -> list[Reading]:
        """The slow files once more: the counters' end matters."""
        last = self._read_slow()
        self._each_poll.clear()
        self._now_and_then.clear()
        return last

    def _read_slow(self) -> list[Reading]:
        return self._read(self._now_and_then)

    def _read(self, files: dict[str, Parser]) -> list[Reading]:
        read, now_ns = self._host.read, self._host.clock.now_ns
        readings: list[Reading] = []
        gone = []
        for path, parser in files.items():
            try:
                text = read(path)
                readings += parser(now_ns(), text)
            except OSError as error:
                if is_gone(error):
                    gone.append(path)
                else:
                    self.errors[_name(path)] += 1
            except (ValueError, LookupError, ArithmeticError):
                self.errors[_name(path)] += 1
        for path in gone:
            names = ", ".join(channel.name for channel in files.pop(path).channels)
            self.lost.append(f"{self._probe}: {_name(path)} vanished at {self._age_s():.1f} s, and with it {names}.")
        return readings

    def _watch(self, file: KernelFile) -> None:
        parser: Parser | None
        try:
            parser = file.parser_for(self._host.read(file.path))
        except FileNotFoundError:
            return  # this kernel does not have it: its channels are absent
        except OSError as error:
            parser = file.parser_for("") if error.errno in _LATER else None
            if parser is None or not parser.channels:
                self.lost.append(f"{self._probe}: {file.path} cannot be read here: {error.strerror or error}.")
                return
            self.errors[_name(file.path)] += 1
        # Kernels keep the same figure in several files, old ways and new: the first one listed has it.
        if parser.channels and set(parser.channels).isdisjoint(self.channels):
            (self._now_and_then if file.slow else self._each_poll)[file.path] = parser
            self.channels += parser.channels

    def _age_s(self) -> float:
        return (self._host.clock.now_ns() - self._start_ns) / 1e9


def is_gone(error: OSError) -> bool:
    """Whether the file will not come back: an open file of a removed cgroup says ENODEV, of an ended process ESRCH."""
    return error.errno in _GONE or isinstance(error, FileNotFoundError)


def unreadable(probe: str, host: Host, path: str) -> list[str]:
    """An obstacle in words if `path` cannot be read on this host, otherwise nothing."""
    try:
        host.read(path)
    except OSError as error:
        return [f"{probe}: {path} cannot be read on {host.name}: {error.strerror or 'there is no such file'}."]
    return []


def _name(path: str) -> str:
    return path.rpartition("/")[2]
