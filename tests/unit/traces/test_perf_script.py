"""What `perf script` prints becomes samples; faults are told apart by cause."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tare.kernel.counters import places
from tare.kernel.traces.perf import Frame, Lost, Sample, cause_of, event_name, samples, top_share

TEXT = Path(__file__).parents[2] / "recordings" / "perf" / "script.txt"


@pytest.fixture
def recorded() -> list[Sample]:
    return [each for each in samples(TEXT.read_text().splitlines()) if isinstance(each, Sample)]


def test_every_sample_of_a_recording_is_read(recorded):
    assert len(recorded) == 16
    assert {sample.event for sample in recorded} == {"page-faults", "block:block_rq_issue"}
    assert {sample.comm for sample in recorded} == {"perf", "perf-exec", "python3"}


def test_a_sample_has_its_time_task_address_and_stack(recorded):
    first = recorded[0]
    assert (first.t_ns, first.cpu, first.pid, first.tid) == (23871418154762, 1, 15849, 15849)
    assert (first.address, first.mapping) == (0xAAAADD480638, "//anon")
    assert first.stack[0] == Frame("0x1ffd94", "/usr/bin/perf")
    assert first.stack[5] == Frame("__libc_start_call_main", "/usr/lib/aarch64-linux-gnu/libc.so.6")


def test_a_tracepoints_stack_does_not_begin_with_itself_twice(recorded):
    block = next(sample for sample in recorded if sample.event.startswith("block"))
    functions = [frame.function for frame in block.stack]
    assert functions[:2] == ["__traceiter_block_rq_issue", "blk_mq_start_request"]


def test_a_name_with_blanks_and_lost_events_are_understood():
    lines = [
        "pool 1 main 7/9 [003] 12.5: page-faults:  7f00 [unknown] ([heap])",
        "\t   7f10 operator new(unsigned long) (/usr/lib/libstdc++.so.6)",
        "",
        "b 7/7 [003] 12.6: page-faults:  7f00 [unknown] (/dev/zero (deleted))",
        "\t   7f10 f(int) (/tmp/x.so (deleted))",
        "",
        "perf 1/1 [001] 23871.4: PERF_RECORD_LOST lost 7",
    ]
    sample, gone, lost = samples(lines)
    assert isinstance(gone, Sample)
    assert (gone.mapping, gone.stack) == ("/dev/zero", (Frame("f(int)", "/tmp/x.so"),))
    assert isinstance(sample, Sample)
    assert (sample.comm, sample.pid, sample.tid, sample.t_ns) == ("pool 1 main", 7, 9, 12_500_000_000)
    assert sample.stack == (Frame("operator new(unsigned long)", "/usr/lib/libstdc++.so.6"),)
    assert lost == Lost(7)


def test_an_event_is_called_without_its_settings():
    assert event_name("page-faults/period=1,max-stack=8/") == "page-faults"
    assert event_name("cycles/name=mine,period=1/") == "mine"


def test_causes_in_a_recording(recorded):
    found = [
        cause_of(sample.mapping, tuple(frame.function for frame in sample.stack[:4]))
        for sample in recorded
        if sample.event == "page-faults"
    ]
    assert Counter(found) == {
        "shared library": 2, "allocator": 2, "copy": 2, "page cache": 2, "heap": 1, "stack": 2, "other": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("mapping", "functions", "cause"),
    [
        ("/usr/lib/libtorch_cpu.so", ("_dl_relocate_object",), "shared library"),
        ("/usr/lib/ld-linux-aarch64.so.1", ("memcpy",), "shared library"),
        ("/data/images.bin", ("__memcpy_generic",), "page cache"),
        ("/usr/bin/python3.11", ("main",), "page cache"),
        ("[stack]", ("_int_malloc",), "stack"),
        ("//anon", ("__memcpy_avx_unaligned_erms", "f"), "copy"),
        ("//anon", ("__arch_copy_to_user", "_copy_to_iter"), "copy"),
        ("[heap]", ("copy_page_to_iter",), "copy"),
        ("[heap]", ("_int_malloc", "malloc"), "allocator"),
        ("//anon", ("__memset_generic", "calloc"), "allocator"),
        ("//anon", ("runtime.memclrNoHeapPointers",), "allocator"),
        ("//anon", ("runtime.(*spanSet).push",), "allocator"),
        ("//anon", ("mmap_ass_subscript", "_PyEval_EvalFrameDefault"), "heap"),
        ("//anon", ("convolution",), "heap"),
        ("[heap]", (), "heap"),
        ("anon_inode:[perf_event]", ("f",), "other"),
        ("", ("f",), "other"),
    ],
)
def test_a_cause_follows_from_what_lies_there_and_who_touched_it(mapping, functions, cause):
    assert cause_of(mapping, functions) == cause


def test_places_are_ranked_and_have_shares():
    found = places({("b", "g", "y", "copy"): 1, ("a", "f", "x", "heap"): 2})
    assert [(place.comm, place.count) for place in found] == [("a", 2), ("b", 1)]
    assert found[0].share == pytest.approx(2 / 3)


def test_the_share_of_the_commonest_labels():
    assert top_share(["a"] * 8 + ["b", "c"], most=1) == 0.8
    assert top_share([]) is None
