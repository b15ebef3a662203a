"""What the words of an event say, many events of one kind at a time.

The rows of one kind are nearly always of one form. Then the whole of them is searched at once, and Python sees a row
only where it differs; where one does, each row is read by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

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
