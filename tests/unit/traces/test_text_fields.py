"""What each form of a line comes to, kept in files; and that pieces and line ends make no difference."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from golden_files import assert_as_in_file
from tare.base.errors import TareError
from tare.kernel.traces.text import text_tables

TEXTS = (
    "bdi 254:0: ino=77 index=3", "bdi 254:0: ino=0x4d index=-3", "bdi 8:16 ino=77 index=3", "ino=77 index=3",
    "index=3 ino=77", "ino=7,index=3", "ino=77 index=3 more=1", "ino=77 index= 3", "ino=1 ino=2", "a = 3 ino=4",
    "254,0 W 800 + 16 [x]", "254,0 WS 4096 () 800 + 16 [x]", "8,0 sector=5 size=4096", "NR 64 (3, ffff)",
    "8,0 w 8 + 1", "8,0 WWWWWWWWWWWW 123456789 + 1234567890", "8,0 W 99999999999999999999 + 1", "bdi : a=1",
    "bdi a=b: c=1", "bdi :: a=1", "bdi 254:0", "bdi 254:0:  ", "a=1 [120] ==> b=2", "a=b=c d=1", "a=1 tail",
    "a=1 tail=", "a=long-word-of-many-bytes b=2", "a=other-word-of-many-bytes b=2  ", "a=12345678 b=123456789",
    "a=1234567890123456789 b=-1", "a=naïve b=2", "a=x\tb=1", "a=x\xa0b=1", "NR x a=1", "NR -1 = 12345678",
    "NR 64 = -11", "a b:7 [120] R ==> c:8 [120]", "a:7 [120] R ==> c:8 [-5]", "a:b:7 [1] R+ ==> c:12345678 [2]",
    ":7 [1] R ==> c:8 [2]", "a:7 [120] R ==> c:8 [120] x", "", "words only", "ino=99999999999999999999 index=1",
    "x=1_0 y=--1", "x=٣ y=1", "x= y=1", "x=" + "y" * 70 + " z=1", "a=1" + " b" * 100 + " c=1", "a=1",
)  # fmt: skip
HEADS = (
    "           <...>-11011 [000] 24833.728102702: ", "    kworker/u8:2-29950 [000] 24833.728102: ",
    "   kworker/u8:1-1234    [001] .....   100.000001: ", "  my prog-3-100   (     99) [000] .....   100.000007: ",
    "a-1 [000] 1.5: ", "-1 [000] 1.5: ", " -1 [000] 1.5: ", "a-1[000] 1.5: ", "a-1 [0000000001] 1.5: ",
    "a-12345678 [000] 1.5: ", "a-12345678901 [000] 1.5: ", "[k]-7 [000] d..1. 1.123456: ", "a-1 [x] 1.5: ",
    "a-1 [000] ab 1.5: ", "a-1 [000] abc 1.5: ", "a-1 [000] abcdefgh 1.5: ", "a-1 [000] abcdefghi 1.5: ",
    "a-1 [000] .....  1234567890.123456: ", "a-1 [000] 1.1234567891234: ", "a-1 [000] 1: ", "# a-1 [000] 1.5: ",
    "a-1 [1] 1.0: x: b-2 [000] 1.5: ", "a-1          [000] 1.5: ", "dockerd-9\t[000] 1.5: ", "bücher-9 [000] 1.5: ",
    "a-1 [000] d..١ 1.5: ", "", "cpus=2", "CPU:1 [LOST 42 EVENTS]", "x" * 70 + "-3 [000] 1.5: ", "a-1 [000]1.5: ",
    "a-1 [000] 1.5:", "a-1 [000] 99999999999999999999.5: ", "[", "\x00", "a -1 [000] 1.5: ",
)  # fmt: skip
NAMES = (
    "writeback_dirty_page: ", "writeback_dirty_folio:", "block_rq_issue: ", "odd:   ", "sys:odd: ", "sys:odd:",
    "a:b:c: ", "ödd: ", "no colon ", "x-y: ", "sched_switch: ", ":", "",
)  # fmt: skip
LINES = st.builds("".join, st.tuples(*map(st.sampled_from, (HEADS, NAMES, TEXTS))))
ALIKE = st.tuples(
    st.sampled_from(HEADS), st.sampled_from(NAMES), st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6)
).map(lambda parts: [parts[0] + parts[1] + text for text in parts[2]])
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def read(path: Path, **options: Any) -> list[Any]:
    found: list[Any] = []
    try:
        for name, columns in text_tables(path, **options):
            found.append((name, {key: (column.dtype.kind, column.tolist()) for key, column in columns.items()}))
    except TareError as error:
        found.append(str(error).split(" (")[0].split(":")[1])
    return found


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("text") / "trace.txt"


def test_each_head_name_and_text_is_read_as_it_was(path: Path):
    """One line each, and what the first of TEXTS gives; a sum over what all of them give tells of any other change."""
    told = []
    for head, name in product(HEADS, NAMES):
        found = [read_of(path, [head + name + text]) for text in TEXTS]
        told.append(f"{head + name!a}\n    {found[0]}\n    {summed(found)}")
    assert_as_in_file("\n".join(told), "traces/text-heads-names.txt")


def test_texts_are_read_as_they_were(path: Path):
    """Each by itself, with its words and without; a sum over it and each other, in one piece and in two."""
    told = []
    for text in TEXTS:
        told.append(f"{text!a}")
        for name in ("odd: ", "writeback_dirty_page: ", "block_rq_issue: "):
            told += [f"    {read_of(path, [HEADS[2] + name + text], whole=whole)}" for whole in (True, False)]
        pairs = [[f"a-1 [000] 1.5: odd: {each}" for each in (text, other)] for other in TEXTS]
        told += [f"    {summed([read_of(path, pair, at_once=size) for pair in pairs])}" for size in (1, 1 << 20)]
    assert_as_in_file("\n".join(told), "traces/text-fields.txt")


def read_of(path: Path, lines: Sequence[str], **options: Any) -> str:
    path.unlink(missing_ok=True)  # a file that is cut to nothing and written anew waits for the disk
    path.write_text("\n".join([*lines, ""]), newline="")
    return json.dumps(read(path, **options))


def summed(found: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(found).encode()).hexdigest()


@given(st.lists(LINES, min_size=1, max_size=12) | ALIKE, ENDS, st.sampled_from([1, 200]), st.booleans())
@example(["a-1 [000] 1.5: odd: a=1"] * 3, "\r", 1, False)
def test_line_ends_and_pieces_make_no_difference(path: Path, lines: list[str], end: str, size: int, ended: bool):
    path.write_text("\n".join([*lines, ""]), newline="")
    whole = read(path)
    path.write_text(end.join(lines) + (end if ended else ""), newline="")
    assert read(path) == whole
    assert heads(read(path, at_once=size)) == heads(whole)


def heads(found: list[Any]) -> Any:
    """What no other line has a say in, for all pieces; or what is wrong, which a piece before it does not yet show."""
    if found and isinstance(found[-1], str):
        return found[-1]
    joined: dict[tuple[str, str], list[Any]] = {}
    for name, columns in found:
        for key in columns.keys() & {"t_ns", "cpu", "pid", "comm", "role", "text", "events"}:
            joined.setdefault((name, key), []).extend(columns[key][1])
    return joined


def test_numbers_are_numbers_and_what_is_too_large_for_one_is_a_word(path: Path):
    path.write_text("a-1 [000] 1.5: odd: a=1 b=0x10 c=99999999999999999999 d=x e=9223372036854775807\n" * 2)
    ((_, found),) = read(path)
    assert [found[key][0] for key in "abcde"] == ["i", "i", "O", "O", "i"]
    assert [found[key][1] for key in "abe"] == [[1, 1], [16, 16], [9223372036854775807] * 2]
