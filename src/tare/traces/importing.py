"""A trace of someone's own, whatever it was made with: which reader takes it, and what is in it as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tare.errors import NoSuchInput, TareError
from tare.traces.decode import lost_events
from tare.traces.recording import HEADER, Recording, open_folder
from tare.traces.tables import Chunk, tables
from tare.traces.text_trace import is_text_trace, text_tables
from tare.traces.trace_dat import is_trace_dat, open_trace_dat
from tare.traces.writeback import counts


@dataclass
class Opened:
    """A trace that can be read, once, and what is known of it before."""

    kind: str  # in words
    clock: str
    chunks: Iterator[Chunk]
    notes: tuple[str, ...] = ()
    lost: dict[int, int] = field(default_factory=dict)


@dataclass
class Summary:
    """What was in a trace."""

    rows: dict[str, int] = field(default_factory=dict)  # by table
    roles: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)  # of write-backs
    lost: dict[int, int] = field(default_factory=dict)  # by core, at least
    first_ns: int | None = None
    last_ns: int | None = None

    def add(self, chunk: Chunk) -> None:
        columns = chunk.columns
        if chunk.name == "lost":
            self.lost |= dict(zip(columns["cpu"].tolist(), columns["events"].tolist(), strict=True))
            return
        self.rows[chunk.name] = self.rows.get(chunk.name, 0) + len(columns["t_ns"])
        if chunk.name == "page_writes":  # made of rows that are counted already
            return
        _count(self.roles, columns["role"] if "role" in columns else np.empty(0))
        if chunk.name == "writeback_start":
            _count(self.reasons, columns["reason"])
        first, last = int(columns["t_ns"].min()), int(columns["t_ns"].max())
        self.first_ns = first if self.first_ns is None else min(first, self.first_ns)
        self.last_ns = last if self.last_ns is None else max(last, self.last_ns)

    @property
    def seconds(self) -> float:
        return 0.0 if self.first_ns is None or self.last_ns is None else (self.last_ns - self.first_ns) / 1e9


@contextmanager
def opened(path: Path) -> Iterator[Opened]:
    """A trace.dat, a text trace, or a folder of raw pages; what must be unpacked goes when this is left."""
    if not path.exists():
        raise NoSuchInput(f"{path}: there is no such file or folder.")
    with TemporaryDirectory(prefix="tare-trace-") as spill:
        if path.is_dir():
            if not (path / HEADER).exists():
                raise TareError(f"{path} is a folder without a raw trace in it.")
            yield _raw("raw pages", open_folder(path))
        elif is_trace_dat(path):
            yield _raw("trace.dat of trace-cmd", open_trace_dat(path, Path(spill)))
        elif is_text_trace(path):
            yield Opened(
                "text", "unknown", text_tables(path), ("A text has times of microseconds, and names no clock.",)
            )
        else:
            raise TareError(
                f"{path} is no trace that tare reads: neither a trace.dat of trace-cmd, nor a text as `cat trace` or "
                "`trace-cmd report` print it, nor a folder of raw pages."
            )


def _raw(kind: str, recording: Recording) -> Opened:
    notes = recording.notes
    if recording.clock != "mono":
        notes += (
            f"Its times are of the clock '{recording.clock}', and not of CLOCK_MONOTONIC (`trace-cmd record -C mono`): "
            "they cannot be set beside other series of the device.",
        )
    lost = {source.cpu: lost_events(source, recording.layout) for source in recording.sources}
    counted = {cpu: found.events + found.uncounted for cpu, found in lost.items() if any(found)}
    return Opened(kind, recording.clock, tables(recording), notes, counted)


def _count(into: dict[str, int], words: np.ndarray) -> None:
    for word, number in counts(words).items():
        into[word] = into.get(word, 0) + number
