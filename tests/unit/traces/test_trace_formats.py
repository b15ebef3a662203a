"""The kernel's format files decide what an event looks like."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.base.errors import TareError
from tare.kernel.traces.formats import EventFormat, parse_event, parse_header_page

RECORDINGS = Path(__file__).parents[2] / "recordings"


def read(kernel: str, event: str) -> EventFormat:
    folder = RECORDINGS / "trace-formats" / kernel
    path = folder / event if folder.is_dir() else RECORDINGS / "trace-6.18" / "formats" / event
    return parse_event(path.read_text())


def test_a_format_file_gives_names_offsets_sizes_and_signs():
    event = read("6.18", "writeback/writeback_start")

    assert (event.name, event.size) == ("writeback_start", 80)
    assert [(field.name, field.offset, field.size, field.signed) for field in event.own[1:3]] == [
        ("nr_pages", 40, 8, True),
        ("sb_dev", 48, 4, False),
    ]
    assert event.own[0].is_text
    assert [field.name for field in event.common] == [
        "common_type", "common_flags", "common_preempt_count", "common_pid",
    ]  # fmt: skip


def test_the_same_number_is_another_reason_in_another_kernel():
    old, new = (read(kernel, "writeback_start").symbols["reason"] for kernel in ("4.9", "5.15"))

    assert (old[1], old[5]) == ("try_to_free_pages", "free_more_memory")
    assert (new[1], new[5]) == ("vmscan", "fs_free_space")


def test_a_length_that_is_a_constants_name_is_taken_from_the_size():
    fields = {field.name: field for field in read("4.9", "sched_process_fork").own}

    assert fields["child_comm"].count == 16
    assert fields["child_comm"].is_text


def test_texts_that_lie_behind_the_record_are_known_by_their_declaration():
    fields = {field.name: field for field in read("5.15", "block_rq_issue").own}

    assert (fields["cmd"].placed, fields["cmd"].is_text, fields["cmd"].type) == ("data_loc", True, "char")
    assert fields["rwbs"].placed == "inline"


def test_an_array_of_numbers_and_a_relative_place_and_a_pointer():
    event = parse_event(
        "name: odd\nID: 7\nformat:\n"
        "\tfield:unsigned long args[6];\toffset:8;\tsize:48;\tsigned:0;\n"
        "\tfield:__rel_loc char[] why;\toffset:56;\tsize:4;\tsigned:0;\n"
        "\tfield:const void * where;\toffset:64;\tsize:8;\tsigned:0;\n"
        "\tfield:char sign;\toffset:72;\tsize:1;\tsigned:1;\n"
    )

    args, why, where, sign = event.own
    assert (args.count, args.element_bytes) == (6, 8)
    assert why.placed == "rel_loc"
    assert (where.name, where.type) == ("where", "const void *")
    assert not sign.is_text


def test_a_page_of_a_32_bit_kernel_has_a_shorter_head():
    layout = parse_header_page((RECORDINGS / "trace-formats" / "header_page_32_bit").read_text())

    assert (layout.commit_bytes, layout.data_offset, layout.page_bytes) == (4, 12, 4096)


def test_a_larger_sub_buffer_overrules_the_size_in_the_file():
    text = (RECORDINGS / "trace-6.18" / "header_page").read_text()

    assert parse_header_page(text).page_bytes == 4096
    assert parse_header_page(text, 65536).page_bytes == 65536


@pytest.mark.parametrize("text", ["", "name: x\nformat:\n", "name: x\nID: 3\nformat:\n\nprint fmt"])
def test_what_is_no_format_file_is_refused_in_words(text: str):
    with pytest.raises(TareError, match=r"format file|names no fields"):
        parse_event(text)


def test_what_is_no_header_page_is_refused_in_words():
    with pytest.raises(TareError, match="header_page"):
        parse_header_page("hello")
