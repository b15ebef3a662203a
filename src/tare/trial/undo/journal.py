"""The write-ahead undo journal: what is about to be changed on the device is on disk before it is changed.

`undo.jsonl`, one sealed line a record, is only ever appended to. A record is pending until another line retires it.
The oldest pending record of a knob holds its baseline, however often it was changed since. After `kill -9` or a power
cut, `restore` (restoration.py) reads what is pending and puts it back.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tare.base.errors import NotPermittedError, TareError
from tare.base.files import sync_folder
from tare.base.processes import Owner, boot_id
from tare.parts.protocols import Control, Json
from tare.trial.device import private_folder, restore_command, trusted_owners

_SEALED = re.compile(rb'^(\{.*),"crc":"([0-9a-f]{8})"\}$', re.DOTALL)
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")


@dataclass(frozen=True, slots=True)
class Stamp:
    """When a record was made, and by whom."""

    boot_id: str
    owner: str  # pid:start time, see `Owner`
    run: str
    time_s: float  # wall clock: the only one that goes on over a reboot


@dataclass(frozen=True, slots=True)
class KnobEntry:
    """A control is about to be changed from `old` to `new`."""

    seq: int
    stamp: Stamp
    control: str
    fields: Mapping[str, Json]
    knob: str  # what `Control.knob()` said: records with the same one share a baseline
    old: Json
    new: Json


@dataclass(frozen=True, slots=True)
class SiteEntry:
    """A platform is about to make things under the name `site`."""

    seq: int
    stamp: Stamp
    platform: str
    site: str


@dataclass(frozen=True, slots=True)
class Retirement:
    """The record `retires` is done with."""

    seq: int
    retires: int


Entry: TypeAlias = KnobEntry | SiteEntry


def seal(content: Mapping[str, Json]) -> bytes:
    """`content` as a line that shows damage. ASCII only, so that a line break is never part of a value."""
    body = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    return body[:-1] + f',"crc":"{zlib.crc32(body):08x}"}}\n'.encode()


def unseal(line: bytes) -> dict[str, Any] | None:
    """The reverse of `seal`, or None if the line is not as it was written."""
    match = _SEALED.match(line)
    if match is None or f"{zlib.crc32(match[1] + b'}'):08x}" != match[2].decode():
        return None
    try:
        content = json.loads(match[1] + b"}")
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def entry_from(content: Mapping[str, Any]) -> Entry | Retirement:
    """The record that a whole line holds; raises ValueError, KeyError or TypeError if tare never writes such a one."""
    kind, seq = content["kind"], _whole(content["seq"])
    if kind == "retire":
        return Retirement(seq, _whole(content["retires"]))
    who = _text(content["boot_id"]), _text(content["owner"]), _text(content["run"])
    stamp = Stamp(*who, time_s=_moment(content["time_s"]))
    if kind == "site":
        return SiteEntry(seq, stamp, _name(content["platform"]), _name(content["site"]))
    if kind != "knob":
        raise ValueError(f"{kind!r} is not a kind of record")
    knob = content["knob"]
    return KnobEntry(
        seq=seq,
        stamp=stamp,
        control=_name(knob["control"]),
        fields=dict(knob["fields"]),
        knob=_text(knob["id"]),
        old=content["old"],
        new=content["new"],
    )


def _whole(value: object) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} is not a number of a record")
    return value


def _moment(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= value < YEAR_10000_S:
        raise ValueError(f"{value!r} is not a moment")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _name(value: object) -> str:
    # Names reach file paths and command lines: nothing that could be read as a path or an option.
    if not NAME.match(_text(value)):
        raise ValueError(f"{value!r} is not a name")
    return _text(value)


FILE = "undo.jsonl"
YEAR_10000_S = 253_402_300_800  # no calendar reaches further
RESERVE_BYTES = 16 << 10  # kept free after each note, so that a full disk cannot stop the lines that retire it
COMPACT_BYTES = 16 << 10  # a study of thousands of trials must not read a journal of megabytes at each of them
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE


class Journal:
    """The undo journal of one device. Only the holder of the `DeviceLock` may write to it."""

    def __init__(
        self,
        folder: Path,
        run: str = "",
        *,
        boot: str | None = None,
        owner: Owner | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self.path = folder / FILE
        self.device = folder.name
        self.run = run
        self.boot = boot or boot_id()
        self.owner = owner or Owner.me()
        self.now_s = now_s
        self.problems: list[str] = []  # about the lines, as they were read last
        self._damaged = False
        self._doubt: str | None = None

    def note_knob(self, control: Control, old: Json, new: Json) -> int:
        """Put on disk that `control` goes from `old` to `new`; only then may it be touched.

        Where the knob has a pending record already, that one's `old` is kept: it is the true baseline.
        """
        earlier = self.history(control)
        content = {
            "knob": {"control": control.part_name(), "fields": control.fields(), "id": control.knob()},
            "old": earlier[0].old if earlier else old,
            "new": new,
            "persistence": control.persistence,
            "restore_rank": control.restore_rank,
        }
        return self._note("knob", content, f"{control.part_name()} was left alone")

    def note_site(self, platform: str, site: str) -> int:
        """Put on disk that `platform` will make things under the name `site`, before it does."""
        if not NAME.match(site):
            raise ValueError(f"{site!r} is not a name for a site")
        return self._note("site", {"platform": platform, "site": site}, f"nothing was made under {site}")

    def retire(self, seq: int, how: str) -> None:
        """The record `seq` is done with: the knob was read back, or the site is gone."""
        self._note("retire", {"retires": seq, "how": how}, "the next start looks at it again", reserve_bytes=0)
        self.compact(COMPACT_BYTES)

    def history(self, control: Control) -> list[KnobEntry]:
        """The pending records of this control's knob, oldest first; without those that a reboot has healed."""
        return [
            entry
            for entry in self.pending()
            if isinstance(entry, KnobEntry)
            and entry.knob == control.knob()
            and (entry.stamp.boot_id == self.boot or control.persistence != "volatile")
        ]

    def pending(self) -> list[Entry]:
        """What is not retired yet, oldest first. Damaged lines are left out, and named in `problems`."""
        entries: dict[int, Entry] = {}
        for record in self._records(self._lines()):
            if isinstance(record, Retirement):
                entries.pop(record.retires, None)
            else:
                entries.setdefault(record.seq, record)
        return list(entries.values())

    def compact(self, at_least_bytes: int = 1) -> None:
        """Start anew if nothing is pending; a file with damage is set aside. Only for the holder of the lock."""
        if self._size() < at_least_bytes or self.pending():
            return
        with contextlib.suppress(OSError):  # a journal that is longer than it need be does no harm
            if self._damaged:
                self.path.replace(self.path.with_suffix(f".damaged-{self.now_s():.0f}.jsonl"))
            else:
                self.path.unlink()
            sync_folder(self.folder)

    # Reading

    def _lines(self) -> list[bytes]:
        """The file, line by line; a last one without its line break is torn, and is passed on as it is."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        except OSError as error:
            reported = f"the undo journal {self.path} cannot be read: {error.strerror}."
            if isinstance(error, PermissionError):
                raise NotPermittedError(f"{reported} Root can read it: `{restore_command(as_root=True)}`.") from error
            raise TareError(reported) from error
        try:
            self._refuse_strangers(descriptor)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read().removesuffix(b"\n").split(b"\n")
        finally:
            os.close(descriptor)

    def _records(self, lines: list[bytes]) -> list[Entry | Retirement]:
        self.problems, self._damaged = [], False
        records = []
        for number, line in enumerate(lines, start=1):
            if not line:
                continue
            content = unseal(line)
            if content is None and number == len(lines):
                # It was being written when tare ended, so what it speaks of was not touched.
                self.problems.append(f"the last line of {self.path} is torn; it was ignored.")
            elif content is None:
                self._problem(number, "is damaged")
            elif content.get("device") != self.device:
                self._problem(number, "was written on another device")
            else:
                try:
                    records.append(entry_from(content))
                except (ValueError, KeyError, TypeError):
                    self._problem(number, "is not a record that tare writes")
        return records

    def _problem(self, number: int, what: str) -> None:
        self._damaged = True
        self.problems.append(f"line {number} of {self.path} {what}; it was ignored.")

    def _refuse_strangers(self, descriptor: int) -> None:
        """A journal that someone else could have written must not steer what root writes."""
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in trusted_owners() or found.st_mode & 0o022:
            raise TareError(
                f"the undo journal {self.path} is not a file that only its owner can write, so it is not trusted.\n"
                f"If its lines are yours, `chmod 600 {self.path}` and try again; otherwise remove it."
            )

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    # Writing

    def _note(self, kind: str, content: Mapping[str, Json], otherwise: str, reserve_bytes: int = RESERVE_BYTES) -> int:
        """Append one record and have it on disk; if that fails, say so, and what was therefore not done."""
        try:
            lines = self._lines()
            seq = 1 + max([len(lines), *(record.seq for record in self._records(lines))])
            stamp = {
                "device": self.device,
                "boot_id": self.boot,
                "owner": str(self.owner),
                "run": self.run,
                "time_s": self.now_s(),
            }
            self._append(seal({"seq": seq, "kind": kind, **content, **stamp}), reserve_bytes)
        except OSError as error:
            raise TareError(
                f"the undo journal {self.path} cannot be written ({error.strerror}), so {otherwise}.\n"
                "Make room on that disk, or make it writable, and try again."
            ) from error
        return seq

    def _append(self, line: bytes, reserve_bytes: int) -> None:
        if self._doubt is not None:
            raise OSError(errno.EIO, self._doubt)
        private_folder(self.folder)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o600)
        try:
            self._refuse_strangers(descriptor)
            size = os.fstat(descriptor).st_size
            if reserve_bytes:
                _reserve(descriptor, size, len(line) + reserve_bytes)
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line  # the line before is torn: do not lengthen it
            _write_whole(descriptor, line, size)
            self._sync(descriptor)
        finally:
            os.close(descriptor)
        if not size:
            sync_folder(self.folder)

    def _sync(self, descriptor: int) -> None:
        try:
            os.fsync(descriptor)
        except OSError as error:
            # After a failed fsync the kernel may have dropped the pages: a second one that succeeds proves nothing.
            self._doubt = f"an earlier fsync failed: {error.strerror}"
            raise


def _write_whole(descriptor: int, line: bytes, size: int) -> None:
    """All of the line or none of it."""
    written = 0
    try:
        written = os.write(descriptor, line)
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)
        raise


def _reserve(descriptor: int, offset: int, length: int) -> None:
    """Have the file system set blocks aside past the end of the file, where it can; no room is an error."""
    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate64", None) or libc.fallocate  # 64 bits wide also on a 32-bit board
    if fallocate(descriptor, _KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(length)) != 0:
        number = ctypes.get_errno()
        if number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG):
            raise OSError(number, os.strerror(number))
