"""Traces as text, as `cat trace`, `trace_pipe` and `trace-cmd report` print them: for traces that someone else made.

Each line has a task, its number, a core, perhaps some flags, a time, an event and its words. Words like `key=value`
become columns; what the block and write-back events print otherwise is known here. A text has fewer figures than the
raw pages that it was made from, and times of microseconds only.

Nearly all lines are alike, so that many are read at once, by arithmetic on whole columns (eight bytes are one number);
a line that differs is read by itself, by the expressions below, which say what is understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from tare.base.errors import StudyError, damage_named
from tare.traces.decode import Columns, column_name
from tare.traces.recording import Chunk, bdi_number, of_disks
from tare.traces.roles import DAEMON, HOST, is_daemon
from tare.traces.writeback import USED, PageWrites

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

BYTES_AT_ONCE = 1 << 23
_BLANK = r"[^\S\n]"
_LINE = re.compile(
    rf"^{_BLANK}*(.[^-\n]*(?:-[^-\n]*)*?)-(\d+){_BLANK}+(?:\({_BLANK}*[\d-]+\){_BLANK}+)?\[(\d+)\]{_BLANK}+"
    rf"(?:(?:[^\s\d]\S{{2,7}}|\.{{3,8}}){_BLANK}+)?(\d+)\.(\d+):{_BLANK}+(?:\w+:)?(\w+):{_BLANK}*(.*)$",
    re.MULTILINE,
)
# The kernel's words, and trace-cmd's.
_LOST = re.compile(rf"{_BLANK}*CPU:{_BLANK}*(\d+) \[(?:LOST )?(\d+)? ?EVENTS(?: DROPPED)?\]")
_NAME = re.compile(r"(?:\w+:)?(\w+):", re.ASCII)
_PAIR = re.compile(r"(\w+)=(\S+)")
_BDI = re.compile(r"^bdi (\S+?):? ")
_BLOCK_WORDS = re.compile("[A-Z]+")
_TASKS = re.compile(  # as trace-cmd prints them
    r"^(?P<prev_comm>.+):(?P<prev_pid>\d+) \[(?P<prev_prio>-?\d+)\] (?P<prev_state>\S+) ==> "
    r"(?P<next_comm>.+):(?P<next_pid>\d+) \[(?P<next_prio>-?\d+)\]"
)
_FORMS = (
    re.compile(
        r"^(?P<major>\d+),(?P<minor>\d+) (?P<rwbs>[A-Z]+) (?:(?P<bytes>\d+) )?(?:\([^)\n]*\) )?"
        r"(?P<sector>\d+) \+ (?P<nr_sector>\d+)"
    ),
    re.compile(r"^(?P<major>\d+),(?P<minor>\d+) sector=(?P<sector>\d+) size=(?P<size>\d+)"),
    re.compile(r"^NR (?P<id>-?\d+)(?: = (?P<ret>-?\d+))?"),
    _TASKS,
)
_WHOLE = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+)")
_LONG_LINE = 1 << 16
_MOST_DIGITS = 18  # of a number that 63 bits hold, whatever its digits


def text_tables(
    path: Path, page_bytes: int = 4096, bytes_at_once: int = BYTES_AT_ONCE, whole: bool = True
) -> Iterator[Chunk]:
    """The tables of a text trace, in pieces; lines that are no events are left out.

    With `whole`, each event has its words as columns and as text; else only those have columns that page writes need.
    """
    writes = PageWrites(page_bytes)
    lost: dict[int, int] = {}
    kinds: dict[str, dict[str, str]] = {}
    at = lines = 0
    with (
        path.open("rb") as file,
        damage_named(path, where=lambda: f"in the {lines} lines from line {at + 1} on"),
    ):
        for block in _blocks(file, bytes_at_once):
            at, lines = at + lines, len(block.ends)
            read = _events(block, whole, lost)
            found = {name: _alike(columns, kinds.setdefault(name, {})) for name, columns in read.items()}
            yield from (Chunk(name, columns) for name, columns in found.items())
            yield from (Chunk("page_writes", columns) for columns in writes.piece(found))
    if not kinds:
        raise StudyError(f"{path}: no line of it is an event as `cat trace` or `trace-cmd report` print one.")
    if lost:
        with damage_named(path, where=lambda: "in its numbers of lost events"):
            cpus, events = np.array(list(lost), np.int32), np.array(list(lost.values()), np.int64)
        yield Chunk("lost", {"cpu": cpus, "events": events})


def is_text_trace(path: Path, lines: int = 1000) -> bool:
    """Whether one of the first lines is an event."""
    with path.open(errors="backslashreplace") as file:
        return any(_LINE.match(file.readline(_LONG_LINE)) for _ in range(lines))


def _blocks(file: BinaryIO, size: int) -> Iterator[_Block]:
    """Whole lines of about so many bytes; a line may end as those of any system do."""
    while piece := file.read(size):
        rest = b"" if piece.endswith(b"\n") else file.readline(BYTES_AT_ONCE)
        if len(rest) == BYTES_AT_ONCE:
            raise ValueError(f"a line of more than {BYTES_AT_ONCE:,} bytes")
        if b"\r" in piece or b"\r" in rest:
            piece, rest = (piece + rest).replace(b"\r\n", b"\n").replace(b"\r", b"\n"), b""
        if not (rest or piece).endswith(b"\n"):
            rest += b"\n"
        yield _Block(b"".join((_PAD, piece, rest, _PAD)))


# Eight bytes are one number, the first of them its lowest; a mark is the highest bit of a byte.
_EACH, _MARK, _SEVEN = (np.uint64(0x0101010101010101 * byte) for byte in (0x01, 0x80, 0x7F))
_ZEROS, _SPACES, _EQUALS = (np.uint64(0x0101010101010101 * ord(byte)) for byte in "0 =")
_NO_DIGIT, _PRINTED = np.uint64(0x0101010101010101 * (0x7F - 9)), np.uint64(0x0101010101010101 * 0x21)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_ONE, _THREE, _SEVENTH, _BITS, _TOP = (np.uint64(number) for number in (1, 3, 7, 64, 56))
_JOINED = tuple((np.uint64(each), np.uint64(factor), np.uint64(bits)) for each, factor, bits in (
    (0x0F0F0F0F0F0F0F0F, 2561, 8), (0x00FF00FF00FF00FF, 6553601, 16), (0x0000FFFF0000FFFF, 42949672960001, 32),
))  # fmt: skip
_TENS = 10 ** np.arange(19, dtype=np.int64)
_LONGEST = 64  # bytes of a word that is looked at eight bytes at a time
_HALF = np.uint64(32)
_SAMPLE = 1000  # words, which often are all the different ones
_PAD = b"\n" * 128  # around a block, so that what is read may begin before it and end after it
_ROWS = 1 << 13  # so many at a time that all their columns stay in the cache


def _below(marks: Words) -> Words:
    """All bits of the bytes before the first mark."""
    return ((marks & (~marks + _ONE)) >> _SEVENTH) - _ONE


def _count(below: Words) -> Ints:
    return (((below & _EACH) * _EACH) >> _TOP).view(np.int64)


def _no_digits(zeroed: Words) -> Words:
    return ((zeroed + _NO_DIGIT) | zeroed) & _MARK


def _no_spaces(words: Words) -> Words:
    words = words ^ _SPACES
    return (((words & _SEVEN) + _SEVEN) | words) & _MARK


def _blanks(words: Words) -> Words:
    return (words - _PRINTED) & ~words & _MARK


def _value(zeroed: Words, count: Ints) -> Ints:
    """The number of so many digits, the first in the lowest byte."""
    digits = zeroed << (_BITS - (count.view(np.uint64) << _THREE))
    for each, factor, bits in _JOINED:
        digits = ((digits & each) * factor) >> bits
    return digits.view(np.int64)


def _different(words: Words) -> Words:
    """Each once, sorted: np.unique would import masked arrays, which takes as long as 20,000 lines."""
    is_first = np.ones(len(words), bool)
    words = np.sort(words)
    is_first[1:] = words[1:] != words[:-1]
    return words[is_first]


def _rows(chosen: npt.NDArray[np.bool_]) -> Ints | slice | None:
    """Their places; all at once where all are chosen, which saves looking each up, and None where none is."""
    places = np.flatnonzero(chosen)
    return (slice(None) if len(places) == len(chosen) else places) if len(places) else None


class _Tokens(NamedTuple):
    """One word of each row: where it begins, its length, and its number where it has one."""

    begin: Ints
    length: Ints
    value: Ints
    is_number: npt.NDArray[np.bool_]


class _Block:
    """Some lines, as text and as bytes: whatever is not ASCII is one byte of 0x80, so that places are the same."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.is_ascii = data.isascii()
        if not self.is_ascii:
            codes = np.frombuffer(self.text.encode("utf-32-le", "surrogatepass"), np.uint32)
            data = np.minimum(codes, 0x80).astype(np.uint8).tobytes()
        self.bytes = np.frombuffer(data, np.uint8)
        self.words: Words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
        inner = self.bytes[len(_PAD) : -len(_PAD)]
        self.ends = np.flatnonzero(inner == 10) + len(_PAD)
        self.begins = np.append(len(_PAD), self.ends[:-1] + 1)
        self.is_plain = np.ones(len(self.ends), bool)  # by line: ASCII, and no blanks but spaces
        if not self.is_ascii or np.count_nonzero(inner < 32) > len(self.ends):
            special = np.flatnonzero((inner != 10) & (inner - np.uint8(32) > 95)) + len(_PAD)
            self.is_plain[np.searchsorted(self.ends, special)] = False

    @cached_property
    def text(self) -> str:
        return self.data.decode("utf-8", "backslashreplace")

    def slices(self, begins: Ints, lengths: Ints) -> list[str]:
        text = self.text
        return [text[begin:end] for begin, end in zip(begins.tolist(), (begins + lengths).tolist(), strict=True)]

    def spaces(self, at: Ints) -> Ints:
        """Spaces from here on."""
        return self._run(at, _no_spaces)

    def printed(self, at: Ints) -> Ints:
        """Bytes from here to the next blank."""
        return self._run(at, _blanks)

    def _run(self, at: Ints, marks: Callable[[Words], Words]) -> Ints:
        found = _count(_below(marks(self.words[at])))
        if (full := _rows(found == 8)) is not None:
            found[full] += self._run(at[full] + 8, marks)
        return found

    def digits(self, at: Ints) -> tuple[Ints, Ints]:
        """The number that begins here, and its digits; of no more than so many it is right."""
        zeroed = self.words[at] ^ _ZEROS
        length = _count(_below(_no_digits(zeroed)))
        value = _value(zeroed, length)
        if (full := _rows(length == 8)) is not None:
            lower, digits = self.digits(at[full] + 8)
            length[full] += digits
            value[full] = value[full] * _TENS[np.minimum(digits, _MOST_DIGITS)] + lower
        return value, length

    def digits_before(self, end: Ints) -> tuple[Ints, Ints]:
        """The number of at most seven digits that ends here, and its digits: 8 are too many."""
        zeroed = self.words[end - 8] ^ _ZEROS
        count = _count(_below(_no_digits(zeroed.byteswap())))
        return _value(zeroed >> (_BITS - (count.view(np.uint64) << _THREE)), count), count

    def tokens(self, at: Ints) -> _Tokens:
        """The words that begin here, up to the next blank; -1 is the length of one that has `=` or no ASCII in it."""
        words = self.words[at]
        below = _below(_blanks(words))
        equals, zeroed = words ^ _EQUALS, words ^ _ZEROS
        wrong = ((((equals - _EACH) & ~equals) | words) & _MARK & below) != 0
        is_number = (_no_digits(zeroed) & below) == 0
        length = _count(below)
        value = _value(zeroed, length)
        if (full := _rows(length == 8)) is not None:
            rest = self.tokens(at[full] + 8)
            length[full] += rest.length
            is_number[full] &= rest.is_number
            value[full] = value[full] * _TENS[np.clip(rest.length, 0, _MOST_DIGITS)] + rest.value
            wrong[full] |= rest.length < 0
        length[wrong] = -1
        return _Tokens(at, length, value, is_number)

    def has(self, at: Ints, literal: str) -> npt.NDArray[np.bool_]:
        """Whether these characters are here."""
        found = np.ones(len(at), bool)
        data = literal.encode()
        for begin in range(0, len(data), 8):
            part = data[begin : begin + 8]
            mask = np.uint64((1 << 8 * len(part)) - 1)
            found &= (self.words[np.minimum(at + begin, len(self.words) - 1)] & mask) == np.uint64(
                int.from_bytes(part, "little")
            )
        return found

    def coded(self, begins: Ints, lengths: Ints) -> tuple[list[str], Ints]:
        """The different words, and for each row which one it has."""
        if not len(begins):
            return [], np.empty(0, np.int64)
        longest = int(lengths.max())
        parts = [lengths.view(np.uint64)]
        for begin in range(0, min(longest, _LONGEST), 8):
            kept = np.clip(lengths - begin, 0, 8).view(np.uint64)
            parts.append(self.words[begins + begin] & ~(_ALL << (kept << _THREE)))
        mixed = parts[0]
        for part in parts[1:]:
            mixed = (mixed ^ part) * _MIX
            mixed ^= mixed >> _HALF
        different = _different(mixed[:_SAMPLE])
        codes = np.minimum(np.searchsorted(different, mixed), len(different) - 1)
        if len(missed := mixed[different[codes] != mixed]):
            different = _different(np.concatenate((different, missed)))
            codes = np.searchsorted(different, mixed)
        first = np.empty(len(different), np.int64)
        first[codes] = np.arange(len(codes))
        if longest > _LONGEST or any(
            (not self.is_ascii and (part & _MARK).any()) or (part[first][codes] != part).any() for part in parts
        ):  # not ASCII, or two words with one sum: told apart the slow way
            named: dict[str, int] = {}
            codes = np.array([named.setdefault(word, len(named)) for word in self.slices(begins, lengths)], np.int64)
            return list(named), codes
        return self.slices(begins[first], lengths[first]), codes


class _Lines(NamedTuple):
    """The heads of all lines that are events, column by column; `name` is the event with its colon."""

    t_ns: Ints
    cpu: Ints
    pid: Ints
    comm: Ints
    comm_end: Ints
    name: Ints
    name_end: Ints
    text: Ints
    text_end: Ints


def _heads(block: _Block) -> tuple[_Lines, npt.NDArray[np.bool_]]:
    """What the heads of the lines say, and which of them are of the usual form."""
    offset, found = _bracket_offset(block), []
    for at in range(0, len(block.begins), _ROWS):
        rows = slice(at, at + _ROWS)
        found.append(_heads_of(block, block.begins[rows], block.ends[rows], offset))
    *columns, fits = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return _Lines(*columns), fits & block.is_plain


def _heads_of(block: _Block, begin: Ints, end: Ints, offset: int) -> tuple[npt.NDArray[Any], ...]:
    bracket = np.minimum(begin + offset, end)
    for row in np.flatnonzero(block.bytes[bracket] != ord("[")).tolist():
        found = block.data.find(b"[", int(begin[row]), int(end[row])) if block.is_ascii else -1
        bracket[row] = found if found >= 0 else end[row]
    gap = _count(_below(_no_spaces(block.words[bracket - 8].byteswap())))
    pid, pid_digits = block.digits_before(bracket - gap)
    dash = bracket - gap - pid_digits - 1
    fits = (bracket < end) & (gap > 0) & (gap < 8) & (pid_digits > 0) & (pid_digits < 8) & (dash > begin)
    fits &= block.bytes[dash] == ord("-")
    cpu, digits = block.digits(bracket + 1)
    at = bracket + 1 + digits
    fits &= (digits > 0) & (digits < 8) & (block.bytes[at] == ord("]"))
    at = np.minimum(at + 1, end)
    spaces = block.spaces(at)
    at = at + spaces
    words = block.words[at]
    flags = np.where((words & np.uint64(0xFF)) - np.uint64(ord("0")) > 9, _count(_below(_blanks(words))), 0)
    fits &= (spaces > 0) & ((flags == 0) | ((flags > 2) & (flags < 8)))
    at = np.minimum(at + flags, end)
    spaces = block.spaces(at)
    seconds, digits = block.digits(at + spaces)
    at = np.minimum(at + spaces + digits, end)
    fits &= ((flags == 0) | (spaces > 0)) & (digits > 0) & (digits < 10) & (block.bytes[at] == ord("."))
    fraction, digits = block.digits(at + 1)
    at = np.minimum(at + 1 + digits, end)
    fits &= (digits > 0) & (digits < 10) & (block.bytes[at] == ord(":"))
    spaces = block.spaces(at + 1)
    name = np.minimum(at + 1 + spaces, end)
    name_end = name + block.printed(name)
    fits &= (spaces > 0) & (name_end > name)
    text = np.minimum(name_end + block.spaces(name_end), end)
    t_ns = seconds * 1_000_000_000 + fraction * _TENS[9 - np.minimum(digits, 9)]
    comm = np.minimum(begin + block.spaces(begin), dash)
    return t_ns, cpu, pid, comm, dash, name, name_end, text, end, fits


def _bracket_offset(block: _Block) -> int:
    """How far from the beginning of its line the `[` of the core is, in most of the first lines."""
    found = [line.find(b"[") for line in block.data[len(_PAD) : len(_PAD) + (1 << 12)].split(b"\n")]
    return max(8, max(found, key=found.count))


def _by_itself(block: _Block, lines: _Lines, rows: Sequence[int], lost: dict[int, int]) -> list[bool]:
    """Lines of another form, one by one: whether each is an event, and what its head says."""
    found = []
    for row in rows:
        begin, end = int(block.begins[row]), int(block.ends[row])
        if told := _LOST.match(block.text, begin, end):
            cpu, count = told.groups()
            lost[int(cpu)] = lost.get(int(cpu), 0) + int(count or 1)  # not counted is one at least
        line = _LINE.match(block.text, begin, end)
        found.append(line is not None)
        if line is not None:
            pid, cpu = np.array([int(line[2]), int(line[3])], np.int32)
            places = (*line.span(1), line.start(6), line.end(6) + 1, *line.span(7))
            head = (int(line[4] + (line[5] + "000000000")[:9]), cpu, pid, *places)
            for column, value in zip(lines, head, strict=True):
                column[row] = value
    return found


def _events(block: _Block, whole: bool, lost: dict[int, int]) -> dict[str, Columns]:
    """The events of some lines by name, each kind in columns; `lost` grows by those that were lost, core by core."""
    lines, usual = _heads(block)
    is_event, doubted = usual.copy(), np.flatnonzero(~usual)
    while True:
        is_event[doubted] = _by_itself(block, lines, doubted.tolist(), lost)
        usual[doubted] = False
        rows = np.flatnonzero(is_event)
        names, which = block.coded(lines.name[rows], (lines.name_end - lines.name)[rows])
        comms, tasks = block.coded(lines.comm[rows], (lines.comm_end - lines.comm)[rows])
        matches = [_NAME.fullmatch(name) for name in names]
        is_odd = np.array([match is None for match in matches], bool)[which]
        is_odd |= np.array(["[" in comm for comm in comms], bool)[tasks]
        doubted = rows[is_odd & usual[rows]]
        if not len(doubted):
            break
    called = [match[1].replace("writeback_dirty_page", "writeback_dirty_folio") for match in matches if match]
    kinds = list(dict.fromkeys(called))
    kind = np.array([kinds.index(name) for name in called], np.uint16)[which]
    order = np.argsort(kind, kind="stable")
    bounds = np.searchsorted(kind[order], np.arange(len(kinds) + 1))
    comms = [comm.strip() for comm in comms]
    roles = np.array([DAEMON if is_daemon(comm) else HOST for comm in comms], object)
    tasks_named = np.array(comms, object)
    found = {}
    for at in np.argsort(order[bounds[:-1]]).tolist():  # as the events come first
        group = order[bounds[at] : bounds[at + 1]]
        its = rows[group]
        head = _Lines(*(column[its] for column in lines))
        columns: Columns = {
            "t_ns": head.t_ns, "cpu": head.cpu.astype(np.int32), "pid": head.pid.astype(np.int32),
            "comm": tasks_named[tasks[group]], "role": roles[tasks[group]],
        }  # fmt: skip
        if whole or kinds[at] in USED:
            fields = columns_of(block, head.text, head.text_end, block.is_plain[its])
            columns |= {column_name(key): column for key, column in fields.items()}
        if whole:
            words = block.slices(head.text, head.text_end - head.text)
            is_stripped = block.is_ascii and (block.bytes[head.text_end - 1] > 32).all()
            columns["text"] = np.array(words if is_stripped else [word.rstrip() for word in words], dtype=object)
        found[kinds[at]] = _of_disks(kinds[at], columns)
    return found


class _Slot(NamedTuple):
    """One value of a form: what stands before it, and how it ends."""

    key: str
    literal: str
    kind: str  # "number", "word", "bdi" (a word, perhaps with a colon), "task" (a word, a colon, a number)


_WORDS_OF_FORMS = {"rwbs": "block", "prev_state": "word", "prev_comm": "task", "next_comm": "task"}


def _slots(text: str) -> tuple[list[_Slot], str | None] | None:
    """The values of a text, and what must follow the last (None: anything); None where it is read by itself."""
    slots, at = [], 0
    for form in _FORMS:
        if match := form.match(text):
            for key in sorted(filter(match.group, form.groupindex), key=match.start):
                if key not in ("prev_pid", "next_pid"):  # with their tasks
                    kind = _WORDS_OF_FORMS.get(key, "number")
                    slots.append(_Slot(key, text[at : match.start(key)], kind))
                    at = match.end(key.replace("comm", "pid"))
            return slots, text[at:].rstrip() if form is _TASKS else None
    if text[:1].isdigit() or text.startswith("NR ") or (" ==> " in text and " [" in text):
        return None  # another of these may have a form that this one has not
    if bdi := _BDI.match(text):
        slots, at = [_Slot("bdi", "bdi ", "bdi")], bdi.end() - 1
    for pair in _PAIR.finditer(text):
        if pair.start() < at or "=" in pair[2]:
            return None
        slots.append(_Slot(pair[1], text[at : pair.start(2)], "word"))
        at = pair.end()
    keys = [slot.key for slot in slots]
    is_one_form = len(set(keys)) == len(keys) and keys[-1] != "bdi"
    return (slots, text[at:].rstrip()) if is_one_form else None


def columns_of(block: _Block, begin: Ints, end: Ints, is_plain: npt.NDArray[np.bool_]) -> dict[str, npt.NDArray[Any]]:
    """Each name that every text gives a value, with the values: numbers where all are."""
    (first,) = block.slices(begin[:1], end[:1] - begin[:1])
    names = _fields(first)
    if not names:
        return {}
    form = _slots(first) if first.isascii() and first.isprintable() else None
    fits, values = np.zeros(len(begin), bool), dict[str, _Tokens]()
    if form:
        pieces = [slice(at, at + _ROWS) for at in range(0, len(begin), _ROWS)]
        found = [_at_once(block, begin[rows], end[rows], *form) for rows in pieces]
        fits = np.concatenate([fitting for fitting, _ in found])
        for key in found[0][1]:
            values[key] = _Tokens(*map(np.concatenate, zip(*(tokens[key] for _, tokens in found), strict=True)))
    rest = np.flatnonzero(~(fits & is_plain))
    others = [_fields(text) for text in block.slices(begin[rest], (end - begin)[rest])]
    # Where some row has no value there is no column: then the whole text is what there is.
    return {
        key: _column(block, values.get(key), rest, [other[key] for other in others])
        for key in names
        if all(key in other for other in others)
    }


def _at_once(
    block: _Block, begin: Ints, end: Ints, slots: Sequence[_Slot], tail: str | None
) -> tuple[npt.NDArray[np.bool_], dict[str, _Tokens]]:
    """Which rows have the form of the first, and their values."""
    fits, at, found = np.ones(len(begin), bool), begin, {}
    for key, literal, kind in slots:
        fits &= block.has(at, literal)
        at = np.minimum(at + len(literal), end)
        if kind == "number":
            minus = (block.bytes[at] == ord("-")) & (key in ("id", "ret", "prev_prio", "next_prio"))
            value, digits = block.digits(at + minus)
            length = minus + digits
            found[key] = _Tokens(at, length, np.where(minus, -value, value), digits <= _MOST_DIGITS)
            fits &= digits > 0
        elif kind == "task":
            length = block.printed(at)
            value, digits = block.digits_before(at + length)
            colon_at = length - digits - 1
            fits &= (digits > 0) & (digits < 8) & (colon_at > 0) & (block.bytes[at + colon_at] == ord(":"))
            found[key] = _Tokens(at, colon_at, value, np.zeros(len(at), bool))
            found[key.replace("comm", "pid")] = _Tokens(at + colon_at + 1, digits, value, digits < 8)
        else:
            found[key] = word = block.tokens(at)
            length = word.length
            fits &= word.length > 0
            if kind == "bdi":
                colon = (word.length > 1) & (block.bytes[at + word.length - 1] == ord(":"))
                found[key] = word._replace(length=word.length - colon, is_number=word.is_number & ~colon)
            elif kind == "block":
                words, which = block.coded(at, np.maximum(word.length, 0))
                fits &= np.array([bool(_BLOCK_WORDS.fullmatch(word)) for word in words])[which]
        at = np.minimum(at + length, end)
    if tail is not None:
        fits &= block.has(at, tail)
        at = np.minimum(at + len(tail), end)
        fits &= at + block.spaces(at) >= end
    return fits, found


def _fields(text: str) -> Mapping[str, str]:
    """What the words of one event say, by name."""
    for form in _FORMS:
        if found := form.match(text):
            return {key: value for key, value in found.groupdict().items() if value is not None}
    fields = dict(_PAIR.findall(text))
    if bdi := _BDI.match(text):
        fields["bdi"] = bdi[1]
    return fields


def _column(block: _Block, tokens: _Tokens | None, rest: Ints, words: Sequence[str]) -> npt.NDArray[Any]:
    """Numbers where all are, else words; those of the `rest` are given."""
    if tokens is None:  # none but the rest
        return _column(block, _Tokens(rest, rest * 0, rest * 0, rest < 0), rest, words)
    odd = ~tokens.is_number | (tokens.length > _MOST_DIGITS)
    odd[rest] = False
    mine = np.flatnonzero(odd)
    try:
        value = tokens.value.copy()
        value[rest] = _numbers(words)
        for rows in (mine[:1], mine):  # most often the first tells
            different, which = block.coded(tokens.begin[rows], tokens.length[rows])
            value[rows] = np.array(_numbers(different), np.int64)[which]
        return value
    except (ValueError, OverflowError):
        named, which = block.coded(tokens.begin, np.maximum(tokens.length, 0))
        column = np.array(named, dtype=object)[which]
        column[rest] = words
        return column


def _numbers(words: Sequence[str]) -> list[int]:
    if all(map(_WHOLE.fullmatch, words)):
        return [int(word, 0) if word.startswith(("0x", "-0x")) else int(word) for word in words]
    raise ValueError("not all of these words are numbers")


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
        bdis = columns["bdi"].tolist()
        numbers = {bdi: bdi_number(bdi) for bdi in set(bdis)}
        columns["dev"] = np.fromiter(map(numbers.__getitem__, bdis), np.int64, len(bdis))
    return of_disks(columns)
