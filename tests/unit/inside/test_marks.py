from __future__ import annotations

import itertools
import os
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from counted_calls import calls_of
from tare_inside import marks

HEADER_BYTES, RECORD_BYTES = 4096, 16
MOST_CALLS_A_MARK = 5


def test_marks_come_back_in_order_with_their_names_edges_and_steps(marks_file: Path) -> None:
    before_ns = time.monotonic_ns()
    marks.point("ready")
    marks.begin("fetch", 0)
    marks.end("fetch", 0)
    marks.begin("Messung µs", 7)
    after_ns = time.monotonic_ns()

    loaded, lost = marks.load(str(marks_file))

    assert [mark[1:] for mark in loaded] == [
        ("ready", "point", -1),
        ("fetch", "begin", 0),
        ("fetch", "end", 0),
        ("Messung µs", "begin", 7),
    ]
    times_ns = [mark[0] for mark in loaded]
    assert times_ns == sorted(times_ns)
    assert before_ns <= times_ns[0] <= times_ns[-1] <= after_ns
    assert lost == 0


def test_a_group_writes_one_interval_of_each_name_with_the_times_it_was_given(marks_file: Path) -> None:
    write = marks.group(("fetch", "step"), room=2)
    write(3, 1000, 2000, 1000, 5000)

    assert marks.load(str(marks_file)) == (
        [(1000, "fetch", "begin", 3), (1000, "step", "begin", 3), (2000, "fetch", "end", 3), (5000, "step", "end", 3)],
        0,
    )


def test_a_group_keeps_its_room_and_loses_what_goes_beyond_it(marks_file: Path) -> None:
    write = marks.group(("fetch",), room=1)
    marks.point("after")
    write(0, 10, 20)
    write(1, 30, 40)

    loaded, lost = marks.load(str(marks_file))

    assert [mark[1:] for mark in loaded] == [("fetch", "begin", 0), ("fetch", "end", 0), ("after", "point", -1)]
    assert lost == 2


def test_an_interval_can_be_marked_after_the_fact(marks_file: Path) -> None:
    marks.interval("epoch", 2, 50, 90)

    assert marks.load(str(marks_file)) == ([(50, "epoch", "begin", 2), (90, "epoch", "end", 2)], 0)


def test_a_full_buffer_counts_what_it_loses_and_overwrites_nothing(marks_file: Path) -> None:
    for step in range(70):
        marks.point("tick", step)

    loaded, lost = marks.load(str(marks_file))

    assert [mark[3] for mark in loaded] == list(range(64))
    assert lost == 6


def test_a_group_that_does_not_fit_any_more_is_lost_whole(tmp_path: Path) -> None:
    marks.open_marks(str(tmp_path / "small.bin"), capacity=3)
    try:
        write = marks.group(("fetch", "compute"), room=1)
        write(0, 1, 2, 2, 3)
    finally:
        marks.close_marks()

    assert marks.load(str(tmp_path / "small.bin")) == ([], 4)


def test_names_beyond_the_table_are_counted_as_lost(tmp_path: Path) -> None:
    path = tmp_path / "names.bin"
    marks.open_marks(str(path), capacity=200)
    try:
        for number in range(130):
            marks.point(f"name {number}")
    finally:
        marks.close_marks()

    loaded, lost = marks.load(str(path))

    assert len(loaded) == 126
    assert lost == 4


def test_no_file_and_a_file_of_something_else_hold_no_marks(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"not marks" * 1000)

    assert marks.load(str(tmp_path / "nothing")) == ([], 0)
    assert marks.load(str(other)) == ([], 0)


@pytest.mark.parametrize("kept_bytes", [0, 7, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 2 * RECORD_BYTES + 5])
def test_a_torn_file_gives_the_marks_that_are_whole(marks_file: Path, tmp_path: Path, kept_bytes: int) -> None:
    for step in range(5):
        marks.point("tick", step)
    torn = tmp_path / "torn.bin"
    torn.write_bytes(marks_file.read_bytes()[:kept_bytes])

    loaded, lost = marks.load(str(torn))

    assert [mark[3] for mark in loaded] == list(range(max(0, kept_bytes - HEADER_BYTES) // RECORD_BYTES))
    assert lost == 0


def test_a_record_of_garbage_is_lost_and_the_others_are_not(marks_file: Path, tmp_path: Path) -> None:
    for step in range(3):
        marks.point("tick", step)
    data = bytearray(marks_file.read_bytes())
    data[HEADER_BYTES + RECORD_BYTES : HEADER_BYTES + 2 * RECORD_BYTES] = b"\x7f" * RECORD_BYTES
    damaged = tmp_path / "damaged.bin"
    damaged.write_bytes(data)

    loaded, lost = marks.load(str(damaged))

    assert [mark[3] for mark in loaded] == [0, 2]
    assert lost == 1


def test_marks_of_another_are_never_overwritten(marks_file: Path) -> None:
    marks.point("mine")

    with pytest.raises(FileExistsError):
        marks.open_marks(str(marks_file))

    assert len(marks.load(str(marks_file))[0]) == 1


def test_a_disk_without_room_fails_at_opening_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(descriptor: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_room)

    with pytest.raises(OSError, match="No space"):
        marks.open_marks(str(tmp_path / "marks.bin"))

    assert not (tmp_path / "marks.bin").exists()


def test_without_a_buffer_marks_go_nowhere_and_hurt_no_one() -> None:
    marks.close_marks()

    marks.begin("fetch", 1)
    marks.interval("fetch", 1, 2, 3)
    marks.group(("fetch",), room=4)(1, 2, 3)


def test_a_forked_child_does_not_write_into_its_parents_buffer(marks_file: Path) -> None:
    write = marks.group(("fetch",), room=4)
    marks.point("parent")
    child = os.fork()
    if child == 0:
        marks.point("child")
        marks.interval("child", 0, 1, 2)
        write(0, 1, 2)
        os._exit(0)
    os.waitpid(child, 0)
    marks.point("parent")

    loaded, lost = marks.load(str(marks_file))

    assert [mark[1] for mark in loaded] == ["parent", "parent"]
    assert lost == 0


def test_threads_never_take_each_others_slots(tmp_path: Path) -> None:
    path = tmp_path / "threads.bin"
    marks.open_marks(str(path), capacity=8000)

    def mark(name: str) -> None:
        for step in range(1000):
            marks.point(name, step)

    threads = [threading.Thread(target=mark, args=(f"thread {number}",)) for number in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        marks.close_marks()

    loaded, lost = marks.load(str(path))

    assert len({(name, step) for _, name, _, step in loaded}) == 4000
    assert lost == 0


def test_a_killed_process_leaves_every_mark_that_returned(tmp_path: Path) -> None:
    path = tmp_path / "killed.bin"
    child = os.fork()
    if child == 0:
        marks.open_marks(str(path), capacity=4000)
        for step in range(1000):
            with marks.during("fetch", step):
                marks.point("tick", step)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)

    loaded, lost = marks.load(str(path))

    per_step = [("fetch", "begin"), ("tick", "point"), ("fetch", "end")]
    assert [mark[1:] for mark in loaded] == [(*mark, step) for step in range(1000) for mark in per_step]
    assert lost == 0


def test_marks_of_a_signals_handler_are_all_there_under_their_names(tmp_path: Path) -> None:
    marks.open_marks(str(tmp_path / "signals.bin"), capacity=60_000)
    made: list[int] = []
    numbers = itertools.count()

    def handler(*_: object) -> None:
        number = next(numbers)  # a handler may be interrupted by the next signal
        made.append(number)
        marks.point(f"signal{(number + 1) % 40}", number)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
    try:
        for step in range(10_000):
            marks.interval("whole", step, 1000 + step, 2000 + step)
            marks.point(f"other{step % 40}", step)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        marks.close_marks()
    loaded, lost = marks.load(str(tmp_path / "signals.bin"))

    assert made
    assert sorted((name, step) for _, name, _, step in loaded if name.startswith("signal")) == sorted(
        (f"signal{(step + 1) % 40}", step) for step in made
    )
    assert len(loaded) == 30_000 + len(made)
    assert lost == 0


def test_a_buffer_is_filled_nearly_to_its_end_by_many_names(tmp_path: Path) -> None:
    marks.open_marks(str(tmp_path / "full.bin"), capacity=1 << 15)
    for step in range(1 << 15):
        marks.point(f"name{step % 100}", step)
    marks.close_marks()
    loaded, lost = marks.load(str(tmp_path / "full.bin"))

    assert len(loaded) > 0.97 * (1 << 15)
    assert len(loaded) + lost == 1 << 15


def test_a_name_that_was_imported_before_the_buffer_was_open_marks_into_it_and_into_the_next(tmp_path: Path) -> None:
    begin = marks.begin
    marks.close_marks()
    begin("dropped")
    for number in range(2):
        marks.open_marks(str(tmp_path / f"{number}.bin"), capacity=600)
        for step in range(300):
            begin("fetch", step)
        marks.close_marks()

    for number in range(2):
        assert [mark[3] for mark in marks.load(str(tmp_path / f"{number}.bin"))[0]] == list(range(300))


def test_a_mark_calls_next_to_nothing(tmp_path: Path) -> None:
    """What a mark takes in time is in benchmarks; that grows with what it calls."""

    def mark() -> None:
        for step in range(100):
            marks.begin("fetch", step)

    marks.open_marks(str(tmp_path / "cost.bin"), capacity=1 << 17)
    try:
        marks.begin("fetch", 0)  # the first notes its name
        called = calls_of(mark)
    finally:
        marks.close_marks()

    assert called <= 100 * MOST_CALLS_A_MARK + 10


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """Where the marks of a trial lie. On a disk, pages that somebody's sync writes back are touched anew."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def test_no_page_is_touched_for_the_first_time_in_the_timed_loop(in_memory: Path) -> None:
    marks.open_marks(str(in_memory / "pages.bin"), capacity=1 << 16)  # 1 MiB: 256 pages of 4 KiB
    try:
        write, now = marks.group(("fetch", "copy", "compute", "step"), 8000), marks.now_ns
        write(0, now(), now(), now(), now(), now(), now(), now(), now())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for step in range(1, 8000):
            t_ns = now()
            write(step, t_ns, t_ns, t_ns, t_ns, t_ns, t_ns, t_ns, t_ns)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    finally:
        marks.close_marks()

    assert faults < 64


def test_a_small_buffer_with_many_names_loses_nothing_that_has_room(tmp_path: Path) -> None:
    path = tmp_path / "small.bin"
    marks.open_marks(str(path), capacity=4096)
    try:
        for step in range(20):
            for name in range(100):
                marks.begin(f"n{name}", step)
                marks.end(f"n{name}", step)
    finally:
        marks.close_marks()
    loaded, lost = marks.load(str(path))
    assert (len(loaded), lost) == (4000, 0)
