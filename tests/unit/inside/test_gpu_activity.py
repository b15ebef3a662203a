"""The window of steps in which CUPTI tells what ran: on made-up activity, of which the truth is known."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tare_inside import activity, marks

US = 1_000
RECORDINGS = Path(__file__).parents[2] / "recordings" / "h200"


class Machine:
    """A host and a GPU; every call is noted as CUPTI notes it."""

    def __init__(self) -> None:
        self.now = 10**12
        self.free = 0
        self.events: list[tuple[Any, ...]] = []
        self.edges: list[int] = []
        self.waits: list[tuple[int, int]] = []

    def launch(self, kernel_us: int, name: str = "gemm", cost_us: int = 5) -> None:
        call = "cudaMemcpyAsync" if name.startswith("Memcpy") else "cudaLaunchKernel"
        number = len(self.events)
        self.events.append((call, False, self.now, self.now + cost_us * US, number, 0))
        self.now += cost_us * US
        begin = max(self.free, self.now)
        self.free = begin + kernel_us * US
        self.events.append((name, True, begin, self.free, number, 0))

    def synchronise(self) -> None:
        begin, self.now = self.now, max(self.now, self.free) + 8 * US
        self.events.append(("cudaStreamSynchronize", False, begin, self.now, -1, 0))

    def think(self, us: int) -> None:
        self.now += us * US

    def wait_for_data(self, us: int) -> None:
        begin = self.now
        self.now += us * US
        self.waits.append((begin, self.now))

    def found(self, body: Callable[[], None], steps: int = 20) -> dict[str, Any]:
        for _ in range(steps + 1 + activity.SETTLING + 1):
            self.edges.append(self.now)
            body()
        return activity.analysed(self.events, self.edges, self.waits)


def test_a_gpu_that_always_has_work_is_busy_all_the_time() -> None:
    here = Machine()

    def body() -> None:
        for _ in range(10):
            here.launch(100)

    found = here.found(body)
    assert found["busy_share"] == pytest.approx(1.0, abs=1e-6)
    assert found["steps"] == 20
    assert found["kernels"] == pytest.approx(10)
    assert found["window_s"] == pytest.approx(20 * 10 * 100e-6, rel=0.01)


def test_a_gpu_that_waits_for_python_is_launch_bound() -> None:
    here = Machine()

    def body() -> None:
        for _ in range(10):
            here.think(15)
            here.launch(5)

    found = here.found(body)
    assert found["busy_share"] == pytest.approx(5 / 20, abs=0.01)
    assert found["idle_for"]["launch"] == found["idle_share"] == pytest.approx(15 / 20, abs=0.01)
    assert found["idle_for"]["sync"] == found["idle_for"]["data"] == 0


def test_waits_for_data_and_after_synchronising_calls_are_told_apart() -> None:
    here = Machine()

    def body() -> None:
        here.wait_for_data(600)
        here.launch(100, "Memcpy HtoD (Pageable -> Device)")
        here.launch(200)
        here.synchronise()
        here.think(87)
        here.launch(100)
        here.launch(1)  # the host is ahead again
        here.launch(1)

    found = here.found(body)
    whole_us = (here.edges[1] - here.edges[0]) / US
    assert found["window_s"] == pytest.approx(20 * whole_us / 1e6, rel=0.01)
    assert found["idle_for"]["data"] == pytest.approx((600 - 87) / whole_us, abs=0.02)
    assert found["idle_for"]["sync"] == pytest.approx(100 / whole_us, abs=0.01)
    assert found["busy_share"] + found["between_share"] + found["idle_share"] == pytest.approx(1.0)
    assert found["pageable_copies"] == 1
    assert found["copy_s"] == pytest.approx(100e-6)
    assert found["synchronising"] == {"cudaStreamSynchronize": 1}


def test_work_side_by_side_on_two_streams_counts_once() -> None:
    events = []
    for step in range(7):
        at = 1000 * step * US
        for stream in (0, 1):
            number = 2 * step + stream
            events.append(("cudaLaunchKernel", False, at + stream, at + stream + 1, number, 0))
            events.append(("gemm", True, at + (10 + 100 * stream) * US, at + (510 + 100 * stream) * US, number, 0))

    found = activity.analysed(events, [1000 * step * US for step in range(7)], [])
    assert found["busy_share"] == pytest.approx(0.6)


@pytest.mark.parametrize(("name", "by_the_profiler"), [("burn", 0.975), ("lenet", 0.089)])
def test_real_activity_of_an_h200_gives_the_busy_share_of_the_profiler(name: str, by_the_profiler: float) -> None:
    """Six layers of 4096 x 4096 in bf16, and LeNet-5 with batches of 64: 12 steps each (torch 2.11, driver 580).

    The profiler's own share is the sum of its kernels' times in 200 further steps over the time that these took.
    """
    with gzip.open(RECORDINGS / f"activity-{name}.json.gz", "rt") as file:
        offset_ns, edges_ns, rows = json.load(file)
    events = [(*row[:2], row[2] + offset_ns, row[3] + offset_ns, *row[4:]) for row in rows]

    found = activity.analysed(events, edges_ns, [])
    assert found["busy_share"] == pytest.approx(by_the_profiler, abs=0.02)
    if name == "burn":
        assert found["busy_share"] >= 0.97
        assert found["idle_share"] < 0.01
    else:
        assert found["idle_for"]["launch"] > 0.75
        assert found["pageable_copies"] == 2
        assert found["synchronising"] == {"cudaStreamSynchronize": 2}


@pytest.mark.parametrize(
    ("name", "is_work"),
    [
        (
            "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<copy(...)::{lambda()#1}>",
            True,
        ),
        ("Memset (Device)", True),
        ("Optimizer.step#SGD.step", False),
        ("ProfilerStep#5", False),
        ("Stream Sync", False),
    ],
)
def test_kernels_made_from_lambdas_are_work_and_annotations_are_not(name: str, is_work: bool) -> None:
    """torch's elementwise kernels: 116 of 3,500 us of a step of the burn loop on the H200."""
    assert activity._is_work(name) is is_work


class FakeTorch:
    """As much of torch as a window asks for; `cuda` of its version is what differs."""

    def __init__(self, cuda: str | None) -> None:
        self.version = type("version", (), {"cuda": cuda})
        self.profiler, self.cuda = object(), object()


@pytest.mark.parametrize(
    ("cuda", "setting", "opens"),
    [("13.0", None, True), ("12.6", None, True), ("12.4", None, False), ("12.4", "1", True), (None, None, True)],
)
def test_the_window_opens_only_where_cupti_leaves_again(
    tmp_path: Path, clock: Machine, monkeypatch: pytest.MonkeyPatch, cuda: str | None, setting: str | None, opens: bool
) -> None:
    profiler = Profiler()
    monkeypatch.setattr(activity, "Profiler", lambda torch: profiler)
    monkeypatch.delenv(activity.VARIABLE, raising=False)
    if setting is not None:
        monkeypatch.setenv(activity.VARIABLE, setting)
    window = activity.of_script(FakeTorch(cuda), str(tmp_path))
    assert window is not None
    for step in range(activity.FIRST + 1):
        clock.think(100)
        window.stepped(step)
    assert (profiler.started == 1) is opens
    assert window.is_over is not opens
    if not opens:
        window.close()
        assert "before CUDA 12.6" in told(tmp_path)["problem"]


class Profiler:
    def __init__(self, in_use: bool = False) -> None:
        self.in_use, self.running, self.started = in_use, False, 0
        self.conflict: Callable[[], None] = lambda: None

    def is_in_use(self) -> bool:
        return self.in_use

    def start(self, on_conflict: Callable[[], None]) -> None:
        self.running, self.conflict = True, on_conflict
        self.started += 1

    def stop(self) -> object:
        self.running = False
        return self

    def read(self, results: object) -> list[tuple[Any, ...]]:
        assert results is self
        return self.events

    events: list[tuple[Any, ...]] = []  # noqa: RUF012


class Cuda:
    def synchronize(self) -> None:
        pass


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    here = Machine()
    monkeypatch.setattr(marks, "now_ns", lambda: here.now)
    marks.open_marks(str(tmp_path / "marks.bin"), 1000)
    yield here
    marks.close_marks()


def told(folder: Path) -> dict[str, Any]:
    return json.loads((folder / activity.FILE).read_text())


def test_the_window_is_declared_once_and_its_end_depends_on_the_steps(tmp_path: Path, clock: Machine) -> None:
    profiler = Profiler()
    profiler.events = clock.events
    window = activity.Window(profiler, str(tmp_path), Cuda(), wall_ns=lambda: clock.now)
    for step in range(100):
        clock.launch(1000)
        clock.think(50_000)
        window.stepped(step)
    window.close()

    found = told(tmp_path)
    assert profiler.started == 1 and not profiler.running
    assert found["steps"] == activity.LEAST_STEPS
    rows, _ = marks.load(str(tmp_path / "marks.bin"))
    assert [(name, edge, step) for _, name, edge, step in rows] == [
        ("gpu_window", "begin", -1),
        ("gpu_window", "end", -1),
    ]
    assert found["busy_share"] == pytest.approx(1000 / 50_005, rel=0.01)


def test_a_run_that_is_too_short_says_so(tmp_path: Path, clock: Machine) -> None:
    window = activity.Window(Profiler(), str(tmp_path), Cuda(), wall_ns=lambda: clock.now)
    for step in range(3):
        window.stepped(step)
    window.close()
    assert "ended before its window" in told(tmp_path)["problem"]


def test_a_script_that_profiles_itself_is_left_alone(tmp_path: Path, clock: Machine) -> None:
    before, during = Profiler(in_use=True), Profiler()
    for profiler in (before, during):
        window = activity.Window(profiler, str(tmp_path), Cuda(), wall_ns=lambda: clock.now)
        for step in range(activity.FIRST + 2):
            clock.think(100)
            window.stepped(step)
        profiler.conflict()
        window.close()
        assert not profiler.running
        assert "profiler of its own" in told(tmp_path)["problem"]
    assert (before.started, during.started) == (0, 1)
