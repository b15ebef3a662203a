"""A trace of someone's own, whatever it was made with: which reader takes it, and what is in it as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tare.base.errors import NoSuchInput, StudyError, damage_named
from tare.traces.decode import lost_events
from tare.traces.recording import HEADER, Chunk, Recording, open_folder, tables
from tare.traces.text import is_text_trace, text_tables
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
        if chunk.name == "writeback_start" and "reason" in columns:
            _count(self.reasons, columns["reason"])
        first, last = int(columns["t_ns"].min()), int(columns["t_ns"].max())
        self.first_ns = first if self.first_ns is None else min(first, self.first_ns)
        self.last_ns = last if self.last_ns is None else max(last, self.last_ns)

    @property
    def seconds(self) -> float:
        return 0.0 if self.first_ns is None or self.last_ns is None else (self.last_ns - self.first_ns) / 1e9


@contextmanager
def opened(path: Path, whole: bool = True) -> Iterator[Opened]:
    """A trace.dat, a text trace, or a folder of raw pages; what is unpacked goes when it is left.

    Of a text that is not read as a `whole`, events that page writes do not follow from have no columns of their own.
    """
    if not path.exists():
        raise NoSuchInput(f"{path}: no such file or folder.")
    with TemporaryDirectory(prefix="tare-trace-") as spill:
        if path.is_dir():
            if not (path / HEADER).exists():
                raise StudyError(f"{path} is a folder without a raw trace in it.")
            with damage_named(path):
                raw = _raw(path, "raw pages", open_folder(path))
            yield raw
        elif is_trace_dat(path):
            with damage_named(path):
                raw = _raw(path, "trace.dat of trace-cmd", open_trace_dat(path, Path(spill)))
            yield raw
        elif is_text_trace(path):
            note = "A text has times of microseconds, and names no clock."
            yield Opened("text", "unknown", text_tables(path, whole=whole), (note,))
        else:
            raise StudyError(
                f"{path} is no trace that tare reads: neither a trace.dat of trace-cmd, nor a text as `cat trace` or "
                "`trace-cmd report` print it, nor a folder of raw pages."
            )


def _raw(path: Path, kind: str, recording: Recording) -> Opened:
    notes = recording.notes
    if recording.clock != "mono":
        notes += (
            f"Its times are of the clock '{recording.clock}', and not of CLOCK_MONOTONIC (`trace-cmd record -C mono`): "
            "they cannot be aligned with other series of the device.",
        )
    lost = {source.cpu: lost_events(source, recording.layout) for source in recording.sources}
    counted = {cpu: found.events + found.uncounted for cpu, found in lost.items() if any(found)}
    return Opened(kind, recording.clock, _named(path, tables(recording)), notes, counted)


def _named(path: Path, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The tables of raw pages; damage in them is told with how far the reading came."""
    read = 0
    with damage_named(path, where=lambda: f"after {read} tables of its pages"):
        for chunk in chunks:
            yield chunk
            read += 1


def _count(into: dict[str, int], words: np.ndarray) -> None:
    for word, number in counts(words).items():
        into[word] = into.get(word, 0) + number
