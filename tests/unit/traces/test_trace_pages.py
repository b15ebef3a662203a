"""Ring-buffer pages, made by hand: times, padding, lost events, and pages that are not four KiB."""

from __future__ import annotations

import numpy as np
import pytest

from made_up_pages import common, discarded, end_of_page, event, extend, page, stamp
from tare.base.errors import TareError
from tare.kernel.traces.decode import lost, padded, walk
from tare.kernel.traces.formats import PageLayout

LAYOUT = PageLayout()
DATA = common(25, 77) + b"abcdefgh"


def times(*pages: bytes, layout: PageLayout = LAYOUT) -> list[int]:
    return walk(padded(b"".join(pages)), layout).t_ns.tolist()


def test_each_event_is_so_much_later_than_the_one_before():
    assert times(page(1000, event(0, DATA) + event(5, DATA) + event(7, DATA))) == [1000, 1005, 1012]


def test_pages_are_walked_side_by_side_and_come_out_one_after_another():
    long_one = page(100, b"".join(event(1, DATA) for _ in range(50)))
    short_one = page(9000, event(1, DATA))

    walked = walk(padded(long_one + short_one + long_one), LAYOUT)

    assert (walked.offset // 4096).tolist() == [0] * 50 + [1] + [2] * 50
    assert walked.t_ns[50] == 9001


def test_a_long_wait_is_a_record_of_its_own():
    assert times(page(10, event(0, DATA) + event(1 << 40, DATA) + event(1, DATA))) == [
        10, 10 + (1 << 40), 11 + (1 << 40),
    ]  # fmt: skip


def test_two_time_records_in_a_row_add_up():
    assert times(page(0, extend(1 << 30) + extend(3 << 30) + event(2, DATA))) == [(4 << 30) + 2]


def test_an_absolute_time_replaces_what_was_counted():
    assert times(page(10, event(0, DATA) + stamp(123_456_789_012) + event(4, DATA))) == [10, 123_456_789_016]


def test_an_absolute_time_has_only_59_bits_and_the_page_has_the_rest():
    begin = (1 << 61) + 5

    assert times(page(begin, stamp(begin + 1000) + event(1, DATA))) == [begin + 1001]


def test_an_event_that_was_taken_back_is_skipped_and_its_time_is_kept():
    assert times(page(0, event(1, DATA) + discarded(50, 24) + event(2, DATA))) == [1, 53]


def test_padding_without_a_time_of_its_own_takes_none():
    assert times(page(0, event(1, DATA) + discarded(0, 24) + event(2, DATA))) == [1, 3]


def test_nothing_behind_the_end_of_a_page_is_read():
    assert times(page(0, event(1, DATA) + end_of_page() + event(9, DATA))) == [1]


def test_a_long_event_says_its_length_beside_its_head():
    data = common(3, 1) + bytes(range(200))

    walked = walk(padded(page(0, event(1, data) + event(1, DATA))), LAYOUT)

    assert walked.t_ns.tolist() == [1, 2]
    assert np.diff(walked.offset).tolist() == [
        len(data) + 4
    ]  # the first begins behind two words, the second behind one


def test_lost_events_are_counted_where_the_page_has_the_number():
    pages = (
        page(0, event(1, DATA), lost=1234) + page(5, event(1, DATA)) + page(9, event(1, DATA), lost=0, counted=False)
    )

    assert lost(padded(pages), LAYOUT) == (1234, 1)
    assert times(pages) == [1, 6, 10]  # the flags are no part of a page's length


@pytest.mark.parametrize(
    "layout", [PageLayout(4096, 8, 4, 12), PageLayout(16384), PageLayout(65536)], ids=["32 bit", "16 KiB", "64 KiB"]
)
def test_pages_of_other_sizes_and_of_32_bit_kernels(layout: PageLayout):
    many = (layout.page_bytes - layout.data_offset - 16) // 20
    full = page(0, b"".join(event(1, DATA) for _ in range(many)), layout, lost=3)

    walked = walk(padded(full + full), layout)

    assert len(walked.t_ns) == 2 * many
    assert lost(padded(full + full), layout).events == 6


def test_an_empty_page_and_no_page_at_all():
    assert times(page(5, b"")) == []
    assert times() == []


def test_a_page_that_claims_more_than_it_holds_ends_at_its_end():
    broken = bytearray(page(5, event(1, DATA)))
    broken[8:12] = (1 << 20).to_bytes(4, "little")

    walked = walk(padded(bytes(broken)), LAYOUT)

    assert walked.t_ns[0] == 6
    assert (walked.offset < 4096).all()


def test_random_bytes_end_somewhere():
    noise = np.random.default_rng(3).integers(0, 256, 8 * 4096, np.uint8)

    walk(padded(noise), LAYOUT)


def test_a_page_size_that_no_kernel_has_is_refused():
    with pytest.raises(TareError, match="4097 bytes"):
        walk(padded(b"\0" * 5000), PageLayout(4097))
