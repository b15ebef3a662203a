"""A trace of someone's own, whatever it was made with: which reader takes it, and what is in it as a whole.

What the words of an event say, many events of one kind at a time.

The rows of one kind are nearly always of one form. Then the whole of them is searched at once, and Python sees a row
only where it differs; where one does, each row is read by itself.

Traces as text, as `cat trace`, `trace_pipe` and `trace-cmd report` print them: for traces that someone else made.

Each line has a task, its number, a core, perhaps some flags, a time, an event and its words. Words like `key=value`
become columns; what the block and write-back events print otherwise is known here. A text has fewer figures than the
raw pages that it was made from, and times of microseconds only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from operator import add
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tare.base.errors import NoSuchInput, TareError, damage_named
from tare.traces.decode import Columns, column_name, lost_events
from tare.traces.page_writes import PageWrites
from tare.traces.recording import HEADER, Chunk, Recording, bdi_number, of_disks, open_folder, tables
from tare.traces.roles import DAEMON, HOST, is_daemon
from tare.traces.trace_dat import is_trace_dat, open_trace_dat
from tare.traces.writeback import counts

_PAIR = re.compile(r"(\w+)=(\S+)")
_BDI = re.compile(r"^bdi (\S+?):? ", re.MULTILINE)
_FORMS = tuple(
    re.compile(form, re.MULTILINE)
    for form in (
        r"^(?P<major>\d+),(?P<minor>\d+) (?P<rwbs>[A-Z]+) (?:(?P<bytes>\d+) )?(?:\([^)\n]*\) )?"
        r"(?P<sector>\d+) \+ (?P<nr_sector>\d+)",
        r"^(?P<major>\d+),(?P<minor>\d+) sector=(?P<sector>\d+) size=(?P<size>\d+)",
        r"^NR (?P<id>-?\d+)(?: = (?P<ret>-?\d+))?",
        # As trace-cmd prints it.
        r"^(?P<prev_comm>.+):(?P<prev_pid>\d+) \[(?P<prev_prio>-?\d+)\] (?P<prev_state>\S+) ==> "
        r"(?P<next_comm>.+):(?P<next_pid>\d+) \[(?P<next_prio>-?\d+)\]",
    )
)
_WHOLE = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+)")
_DECIMAL = re.compile(r"[0-9-]+")


def columns_of(texts: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Each name that every text gives a value, with the values: numbers where all are."""
    found = _at_once(texts)
    if found is None:
        rows = [_fields(text) for text in texts]
        found = {key: [row.get(key, "") for row in rows] for key in dict.fromkeys(key for row in rows for key in row)}
    # Where some row has no value there is no column: then the whole text is what there is.
    return {key: _column(words) for key, words in found.items() if "" not in words}


def _at_once(texts: Sequence[str]) -> Mapping[str, Sequence[str]] | None:
    """The values by name, where all texts have one form; None where they do not."""
    joined = "\n".join(texts)
    for form in _FORMS:
        if form.match(texts[0]):
            return _found(form, list(form.groupindex), texts, joined)
    return None if _may_have_a_form(texts, joined) else _pairs(texts, joined)


def _may_have_a_form(texts: Sequence[str], joined: str) -> bool:
    """Whether any of them could be of a form that the first is not of, at a glance."""
    return " ==> " in joined or "\nNR " in joined or any(text[:1].isdigit() for text in texts)


def _pairs(texts: Sequence[str], joined: str) -> Mapping[str, Sequence[str]] | None:
    """`key=value` words, where every text has the keys of the first in the same order, and no others."""
    keys = [key for key, _ in _PAIR.findall(texts[0])]
    form = r"[^=\n]*?".join(["^", *(rf"\b{key}=(\S++)" for key in keys)]) + r"[^=\n]*$"
    columns = _found(re.compile(form, re.MULTILINE), keys, texts, joined) if keys else {}
    disks = _BDI.findall(joined)
    if columns is None or len(set(keys)) < len(keys) or len(disks) not in (0, len(texts)):
        return None
    return {**columns, "bdi": disks} if disks else columns


def _found(
    form: re.Pattern[str], keys: Sequence[str], texts: Sequence[str], joined: str
) -> Mapping[str, Sequence[str]] | None:
    """What each group of the form has found in each text; None where it does not fit all of them."""
    rows = form.findall(joined)
    if len(rows) != len(texts):
        return None
    return dict(zip(keys, zip(*rows, strict=True) if len(keys) > 1 else [rows], strict=True))


def _fields(text: str) -> Mapping[str, str]:
    """What the words of one event say, by name."""
    for form in _FORMS:
        if found := form.match(text):
            return {key: value for key, value in found.groupdict().items() if value is not None}
    fields = dict(_PAIR.findall(text))
    if bdi := _BDI.match(text):
        fields["bdi"] = bdi[1]
    return fields


def _column(words: Sequence[str]) -> npt.NDArray[Any]:
    """Numbers where all are, else words."""
    try:
        return np.array(_numbers(words), np.int64)
    except (ValueError, OverflowError):
        return np.array(words, dtype=object)


def _numbers(words: Sequence[str]) -> list[int]:
    if _DECIMAL.fullmatch("".join(words)):  # most are, and one look at all of them is quicker than one at each
        return list(map(int, words))
    if all(map(_WHOLE.fullmatch, words)):
        return [int(word, 0) if word.startswith(("0x", "-0x")) else int(word) for word in words]
    raise ValueError("not all of these words are numbers")


LINES_AT_ONCE = 100_000
_BLANK = r"[^\S\n]"
_LINE = re.compile(
    rf"^{_BLANK}*(.[^-\n]*(?:-[^-\n]*)*?)-(\d+){_BLANK}+(?:\({_BLANK}*[\d-]+\){_BLANK}+)?\[(\d+)\]{_BLANK}+"
    rf"(?:(?:[^\s\d]\S{{2,7}}|\.{{3,8}}){_BLANK}+)?(\d+)\.(\d+):{_BLANK}+(?:\w+:)?(\w+):{_BLANK}*(.*)$",
    re.MULTILINE,
)
_LOST = re.compile(  # the kernel's words, and trace-cmd's
    rf"^{_BLANK}*CPU:{_BLANK}*(\d+) \[(?:LOST )?(\d+)? ?EVENTS(?: DROPPED)?\]", re.MULTILINE
)


class Rows(NamedTuple):
    """Events of one kind, column by column, as they stand in the text."""

    comm: Sequence[str]
    pid: Sequence[str]
    cpu: Sequence[str]
    seconds: Sequence[str]
    fraction: Sequence[str]
    event: Sequence[str]
    text: Sequence[str]


def text_tables(path: Path, page_bytes: int = 4096, lines_at_once: int = LINES_AT_ONCE) -> Iterator[Chunk]:
    """The tables of a text trace, in pieces; lines that are no events are left out."""
    writes = PageWrites(page_bytes)
    lost: dict[int, int] = {}
    kinds: dict[str, dict[str, str]] = {}
    at = [0]
    with (
        path.open(errors="backslashreplace") as file,
        damage_named(path, where=lambda: f"in the {lines_at_once} lines from line {at[0] + 1} on"),
    ):
        for rows in _pieces(file, lines_at_once, lost, at):
            found = {
                name: Chunk(name, _alike(_columns(name, row), kinds.setdefault(name, {}))) for name, row in rows.items()
            }
            yield from found.values()
            written = writes.piece({name: chunk.columns for name, chunk in found.items()})
            yield from (Chunk("page_writes", columns) for columns in written)
    if not kinds:
        raise TareError(f"{path}: no line of it is an event as `cat trace` or `trace-cmd report` print one.")
    if lost:
        with damage_named(path, where=lambda: "in its numbers of lost events"):
            cpus, events = np.array(list(lost), np.int32), np.array(list(lost.values()), np.int64)
        yield Chunk("lost", {"cpu": cpus, "events": events})


def is_text_trace(path: Path, lines: int = 1000) -> bool:
    """Whether one of the first lines is an event."""
    with path.open(errors="backslashreplace") as file:
        return any(_LINE.match(line) for line, _ in zip(file, range(lines), strict=False))


def _pieces(file: Iterable[str], size: int, lost: dict[int, int], at: list[int]) -> Iterator[dict[str, Rows]]:
    lines = iter(file)
    while block := "".join(islice(lines, size)):
        if "EVENTS" in block:
            for cpu, count in _LOST.findall(block):
                lost[int(cpu)] = lost.get(int(cpu), 0) + int(count or 1)  # not counted is one at least
        rows: dict[str, list[tuple[str, ...]]] = {}
        for found in _LINE.findall(block):
            rows.setdefault(found[5].replace("writeback_dirty_page", "writeback_dirty_folio"), []).append(found)
        if rows:
            yield {name: Rows(*zip(*several, strict=True)) for name, several in rows.items()}
        at[0] += size


def _columns(name: str, rows: Rows) -> Columns:
    comms = {comm: comm.strip() for comm in set(rows.comm)}
    roles = {comm: DAEMON if is_daemon(called) else HOST for comm, called in comms.items()}
    columns: Columns = {
        "t_ns": _times_ns(rows.seconds, rows.fraction),
        "cpu": np.array(list(map(int, rows.cpu)), np.int32),
        "pid": np.array(list(map(int, rows.pid)), np.int32),
        "comm": np.array([comms[comm] for comm in rows.comm], dtype=object),
        "role": np.array([roles[comm] for comm in rows.comm], dtype=object),
    }
    columns |= {column_name(key): column for key, column in columns_of(rows.text).items()}
    columns["text"] = np.array([text.rstrip() for text in rows.text], dtype=object)
    return _of_disks(name, columns)


def _times_ns(seconds: Sequence[str], fractions: Sequence[str]) -> npt.NDArray[np.int64]:
    digits = len(fractions[0])
    if digits <= 9 and {digits} == set(map(len, fractions)):
        return np.array(list(map(int, map(add, seconds, fractions))), np.int64) * np.int64(10 ** (9 - digits))
    nines = [(fraction + "000000000")[:9] for fraction in fractions]
    return np.array(list(map(int, map(add, seconds, nines))), np.int64)


def _alike(columns: Columns, kinds: dict[str, str]) -> Columns:
    """With the columns of the event's first piece: one that is new, or has words for numbers, is left out."""
    if not kinds:
        kinds |= {name: column.dtype.kind for name, column in columns.items()}
    return {name: column for name, column in columns.items() if kinds.get(name) == column.dtype.kind}


def _of_disks(name: str, columns: Columns) -> Columns:
    if not name.startswith(("writeback_", "wbc_", "block_")):
        return columns
    if {"major", "minor"} <= columns.keys():
        columns["dev"] = columns.pop("major") << 20 | columns.pop("minor")
    elif "bdi" in columns and "dev" not in columns:
        numbers = {bdi: bdi_number(bdi) for bdi in set(columns["bdi"].tolist())}
        columns["dev"] = np.array([numbers[bdi] for bdi in columns["bdi"].tolist()], np.int64)
    return of_disks(columns)


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
def opened(path: Path) -> Iterator[Opened]:
    """A trace.dat, a text trace, or a folder of raw pages; what must be unpacked goes when this is left."""
    if not path.exists():
        raise NoSuchInput(f"{path}: no such file or folder.")
    with TemporaryDirectory(prefix="tare-trace-") as spill:
        if path.is_dir():
            if not (path / HEADER).exists():
                raise TareError(f"{path} is a folder without a raw trace in it.")
            with damage_named(path):
                raw = _raw(path, "raw pages", open_folder(path))
            yield raw
        elif is_trace_dat(path):
            with damage_named(path):
                raw = _raw(path, "trace.dat of trace-cmd", open_trace_dat(path, Path(spill)))
            yield raw
        elif is_text_trace(path):
            yield Opened(
                "text", "unknown", text_tables(path), ("A text has times of microseconds, and names no clock.",)
            )
        else:
            raise TareError(
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
