"""Whatever is written into ring-buffer pages comes out of them again."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from made_up_pages import common, discarded, event, page, stamp
from tare.kernel.traces.decode import coded, cut, decode, lost, padded, walk, words_of
from tare.kernel.traces.formats import PageLayout, parse_event
from tare.kernel.traces.roles import Timeline

FORMAT = parse_event(
    "name: odd\nID: 7\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
    "\tfield:long value;\toffset:8;\tsize:8;\tsigned:1;\n\tfield:char name[16];\toffset:16;\tsize:16;\tsigned:0;\n"
    "\tfield:u8 small;\toffset:32;\tsize:1;\tsigned:0;\n"
    "\tfield:__data_loc char[] text;\toffset:36;\tsize:4;\tsigned:0;\n"
)
word = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=15).map(str.encode)
record = st.tuples(
    st.one_of(st.integers(0, 1 << 26), st.integers(0, 1 << 50)),  # time since the one before
    st.integers(-(1 << 63), (1 << 63) - 1),
    word,
    st.integers(0, 255),
    st.text(max_size=40).map(lambda text: text.replace("\0", "").encode()),
    st.sampled_from(["", "discarded", "stamp"]),
)


def encoded(value: int, name: bytes, small: int, text: bytes) -> bytes:
    fixed = struct.pack("<q16sBxxxI", value, name, small, (len(text) + 1) << 16 | 40)
    return common(7, 42) + fixed + text + b"\0"


@settings(max_examples=60)
@given(st.lists(st.lists(record, max_size=12), min_size=1, max_size=5), st.sampled_from([4096, 16384]))
def test_events_come_out_as_they_went_in(pages: list[list[tuple[int, int, bytes, int, bytes, str]]], page_bytes: int):
    layout, made, expected, begin = PageLayout(page_bytes), b"", [], 1000
    for records in pages:
        content, now = b"", begin
        for delta, value, name, small, text, before in records:
            if before == "discarded":
                content, now = content + discarded(2, 20), now + 2
            elif before == "stamp":
                content += stamp(now)
            content += event(delta, encoded(value, name, small, text))
            now += delta
            expected.append((now, value, name, small, text))
        made += page(begin, content, layout)
        begin = now + 1

    found = list(decode(padded(made), layout, {7: FORMAT}, cpu=0))

    columns = found[0].columns if found else {}
    names = ("t_ns", "value", "name", "small", "text")
    assert list(zip(*(columns[name].tolist() for name in names), strict=True) if found else []) == expected


@settings(max_examples=100)
@given(st.integers(0, 1 << 32), st.integers(1, 3), st.sampled_from([32, 256]))
def test_no_bytes_make_the_walk_run_away_or_leave_its_pages(seed: int, pages: int, most: int):
    whole = np.random.default_rng(seed).integers(0, most, pages * 4096, np.uint8).tobytes()

    walked = walk(padded(whole), PageLayout())

    assert (walked.offset <= len(whole)).all()
    assert len(walked.offset) <= len(whole) // 4
    lost(padded(whole), PageLayout())


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=30))
def test_texts_are_cut_at_the_first_zero_byte_and_told_apart(texts: list[bytes]):
    fixed = np.array(texts, "S20")
    expected = [text.split(b"\0", 1)[0] for text in texts]

    assert cut(fixed).tolist() == expected
    different, codes = coded(cut(fixed))
    assert [different[code] for code in codes.tolist()] == [
        text.decode("utf-8", "backslashreplace") for text in expected
    ]
    assert words_of(cut(fixed)).tolist() == [different[code] for code in codes.tolist()]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20), st.integers(0, 9)), max_size=30),
    st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 21)), min_size=1, max_size=30),
    st.integers(0, 20),
)
def test_a_timeline_agrees_with_a_loop(
    entries: list[tuple[int, int, int]], asked: list[tuple[int, int]], forgotten: int
):
    line = Timeline()
    for key, time, value in entries:
        line.add([key], [time], [value])

    def slow(key: int, time: int) -> int:
        best = (-1, -1)
        for entry_key, entry_time, value in entries:
            if entry_key == key and entry_time <= time and entry_time >= best[0]:
                best = (entry_time, value)
        return best[1]

    keys, times = (np.array(part, np.int64) for part in zip(*asked, strict=True))
    assert line.at(keys, times).tolist() == [slow(*one) for one in asked]
    line.forget_before(forgotten)
    later = [one for one in asked if one[1] >= forgotten]
    if later:
        keys, times = (np.array(part, np.int64) for part in zip(*later, strict=True))
        assert line.at(keys, times).tolist() == [slow(*one) for one in later]
