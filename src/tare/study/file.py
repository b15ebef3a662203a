"""The text of a study file: whether root may act on it, and whether it is text at all."""

from __future__ import annotations

import difflib
import os
import re
import stat
from pathlib import Path

from tare.errors import StudyError
from tare.study.source import Fatal, Problem

MAX_BYTES = 128 * 1024  # the scanner needs 5 s for the worst MiB, and no study that people read is longer

_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WIDE = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"), (b"\x00\x00\xfe\xff", "UTF-32"))


def read(path: Path, *, trust: bool, most_bytes: int = MAX_BYTES) -> bytes:
    """The bytes of the file, checked and read through one descriptor so that nobody can swap it in between."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise StudyError(f"{path}: this file cannot be read: {_reason(error)}.{_near(path)}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StudyError(f"{path}: this is not a file. Give the path of a study, such as study.yaml.")
        if not trust:
            _refuse_foreign(path, status)
        found = bytearray()
        while len(found) <= most_bytes and (chunk := os.read(descriptor, most_bytes + 1)):
            found += chunk
        return bytes(found)
    except OSError as error:
        raise StudyError(f"{path}: this file cannot be read: {_reason(error)}.") from None
    finally:
        os.close(descriptor)


def decoded(text: str | bytes, most_bytes: int = MAX_BYTES) -> str:
    """The text, if it is text: UTF-8 with or without a byte order mark, any line ends."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if len(raw) > most_bytes:
        raise Fatal(Problem(1, 1, f"the file is too large: it may have at most {most_bytes:,} bytes."))
    for mark, encoding in _WIDE:
        if raw.startswith(mark):
            raise Fatal(Problem(1, 1, f"the file is in {encoding}. Save it as UTF-8."))
    try:
        found = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        said = f"byte {raw[error.start]:#04x} is not UTF-8. Save the file as UTF-8."
        raise Fatal(Problem(line, 1, said)) from None
    if control := _CONTROL.search(found):
        raise Fatal(_control_character(found, control.start()))
    return found


def _control_character(text: str, at: int) -> Problem:
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    name = "a NUL byte" if text[at] == "\0" else f"the control character U+{ord(text[at]):04X}"
    return Problem(line, column, f"there is {name} in column {column}. Is this a text file, in UTF-8?")


def _refuse_foreign(path: Path, status: os.stat_result) -> None:
    """Root does what the file says, so nobody else may have a hand in it (as for sudoers)."""
    if os.geteuid() != 0:
        return
    sudo_user = os.environ.get("SUDO_UID", "")
    ours = {0, int(sudo_user) if sudo_user.isdecimal() else 0}
    if status.st_uid not in ours:
        who = f"it belongs to user {status.st_uid}"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        who = "others can write to it"
    else:
        return
    raise StudyError(
        f"{path}:1: tare runs as root and does what this file says, but {who}.\n"
        f"  Read it, then `chown root {path}` and `chmod go-w {path}`; or pass --trust."
    )


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _near(path: Path) -> str:
    """The file in the same folder that was probably meant."""
    try:
        here = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml")]
    except (OSError, ValueError):
        return ""
    close = difflib.get_close_matches(path.name, here, n=1)
    return f"\n  Did you mean {str(path.with_name(close[0]))!r}?" if close else ""
