"""A step as the GPU saw it, on a made-up GPU that works through its stream behind the host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tare_inside import gpu as gpu_events
from tare_inside import marks
from tare_inside.steps import Steps

US = 1_000


class FakeGpu:
    """As much of torch.cuda as is used. Work is queued with `work`."""

    def __init__(self) -> None:
        self.host_ns = 1_000_000
        self.free_at_ns = 0  # when the GPU will have done what it was given, on the host's clock
        self.capturing = self.started = False
        self.synchronised = self.made = self.recorded = 0
        self.recording_ns = self.reading_ns = 0  # what it costs the host to record an event, and to read two
        self.read = 0

    def is_initialized(self) -> bool:
        return self.started

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def work(self, for_ns: int) -> None:
        self.free_at_ns = max(self.free_at_ns, self.host_ns) + for_ns

    def Event(self, enable_timing: bool) -> FakeEvent:  # noqa: N802
        assert enable_timing
        self.made += 1
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self._at_ns: int | None = None

    def record(self) -> None:
        self._gpu.recorded += 1
        self._gpu.host_ns += self._gpu.recording_ns
        self._at_ns = max(self._gpu.free_at_ns, self._gpu.host_ns)

    def query(self) -> bool:
        assert self._at_ns is not None
        return self._at_ns <= self._gpu.host_ns

    def synchronize(self) -> None:
        assert self._at_ns is not None
        self._gpu.synchronised += 1
        self._gpu.host_ns = max(self._gpu.host_ns, self._at_ns)

    def elapsed_time(self, later: FakeEvent) -> float:
        assert self.query() and later.query(), "asked for an event that has not happened: that would wait"
        assert self._at_ns is not None and later._at_ns is not None
        self._gpu.read += 1
        self._gpu.host_ns += self._gpu.reading_ns
        return (later._at_ns - self._at_ns) / 1e6


class Loop:
    """A training loop on the made-up GPU: each step is 20 us of host work and `gpu_us` of kernels."""

    def __init__(self, gpu: FakeGpu, path: Path) -> None:
        self.gpu, self._path = gpu, path
        self.steps = Steps(100, lambda: gpu_events.timeline(gpu))
        self.current = self.steps.iterated(self.pass_us(1), 1, True)

    def pass_us(self, us: int) -> int:
        self.gpu.host_ns += us * US
        return self.gpu.host_ns

    def train(self, stall_us: int = 5, gpu_us: int = 60) -> None:
        self.steps.finish()
        self.steps.fetched(self.current, self.gpu.host_ns, self.pass_us(stall_us))
        self.gpu.work(gpu_us * US // 3)
        begin_ns = self.pass_us(5)
        if self.steps.gpu is not None:
            self.steps.gpu.stamp(begin_ns)
        self.gpu.work(gpu_us * US // 3)
        self.steps.went_backward(begin_ns, self.pass_us(5))
        self.gpu.work(gpu_us * US // 3)
        self.steps.optimised(1, self.gpu.host_ns, self.pass_us(5))

    def train_without_loader(self, gpu_us: int = 60) -> None:
        """Host work of 15 us: forward, backward, optimiser; nothing tells of the forward pass."""
        self.gpu.work(gpu_us * US // 3)
        begin_ns = self.pass_us(5)
        if self.steps.gpu is not None:
            self.steps.gpu.stamp(begin_ns)
        self.gpu.work(gpu_us * US // 3)
        self.steps.went_backward(begin_ns, self.pass_us(5))
        self.gpu.work(gpu_us * US // 3)
        self.steps.optimised(1, self.gpu.host_ns, self.pass_us(5))

    def seen(self) -> dict[str, list[tuple[int, int, int]]]:
        self.steps.close()
        begun: dict[tuple[str, int], int] = {}
        found: dict[str, list[tuple[int, int, int]]] = {}
        for t_ns, name, edge, step in marks.load(str(self._path))[0]:
            if edge == "begin":
                begun[name, step] = t_ns
            else:
                found.setdefault(name, []).append((step, begun[name, step], t_ns))
        return found


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    gpu = FakeGpu()
    monkeypatch.setattr(marks, "now_ns", lambda: gpu.host_ns)
    marks.open_marks(str(tmp_path / "marks.bin"), 10_000)
    yield Loop(gpu, tmp_path / "marks.bin")
    marks.close_marks()


def lengths_us(spans: list[tuple[int, int, int]]) -> list[float]:
    return [round((end_ns - begin_ns) / US, 1) for _, begin_ns, end_ns in spans]


def test_a_gpu_that_is_slower_than_the_host_is_never_idle(loop: Loop) -> None:
    loop.gpu.started = True
    for _ in range(8):
        loop.train(gpu_us=60)

    seen = loop.seen()
    assert [step for step, _, _ in seen["gpu_step"]] == list(range(1, 8))  # the first one found the GPU
    assert lengths_us(seen["gpu_step"])[2:] == [60.0] * 5
    assert lengths_us(seen["gpu_idle"])[2:] == [0.0] * 4
    assert lengths_us(seen["gpu_forward"])[2:] == lengths_us(seen["gpu_backward"])[2:] == [20.0] * 5


def test_a_gpu_that_waits_for_data_is_idle_and_its_steps_lie_on_the_hosts_clock(loop: Loop) -> None:
    loop.gpu.started = True
    for _ in range(5):
        loop.train(stall_us=100, gpu_us=9)

    seen = loop.seen()
    assert all(idle >= 99 for idle in lengths_us(seen["gpu_idle"]))
    fetched = {step: end_ns for step, _, end_ns in seen["fetch"]}
    for step, begin_ns, _ in seen["gpu_step"]:
        assert abs(begin_ns - fetched[step]) <= 1 * US


def test_without_a_loader_the_forward_pass_is_part_of_the_step_and_never_idle(loop: Loop) -> None:
    loop.gpu.started = True
    for _ in range(10):
        loop.train_without_loader(gpu_us=60)

    seen = loop.seen()
    assert "gpu_idle" not in seen
    assert lengths_us(seen["gpu_step"])[2:] == [60.0] * (len(seen["gpu_step"]) - 2)
    assert len(seen["gpu_step"]) >= 7
    for name in ("gpu_forward", "gpu_backward", "gpu_optimiser"):
        assert lengths_us(seen[name])[2:] == [20.0] * (len(seen[name]) - 2)
    ends = {step: end_ns for step, _, end_ns in seen["gpu_step"]}
    gaps = [begin_ns - ends[step - 1] for step, begin_ns, _ in seen["gpu_step"] if step - 1 in ends]
    assert gaps and max(map(abs, gaps)) <= 1 * US  # but for where the row is placed on the host's clock
    assert loop.gpu.made < 40


def test_what_came_between_two_steps_without_a_loader_is_in_none(loop: Loop) -> None:
    """An evaluation whose begin nobody saw: the next forward pass begins later than the last step ended."""
    loop.gpu.started = True
    for number in range(8):
        if number == 4:
            loop.steps.finish()
            loop.gpu.work(900 * US)
            loop.steps._since_ns, loop.steps._follows_ns = loop.pass_us(50), None
        loop.train_without_loader(gpu_us=60)

    lengths = lengths_us(loop.seen()["gpu_step"])
    assert len(lengths) >= 4
    assert max(lengths) <= 65


@pytest.mark.parametrize("has_loader", [True, False])
def test_where_events_are_dear_few_steps_are_recorded_and_those_are_right(loop: Loop, has_loader: bool) -> None:
    loop.gpu.started, loop.gpu.recording_ns = True, 30 * US
    for _ in range(500):
        loop.pass_us(2_400)
        if has_loader:
            loop.train(gpu_us=60)
        else:
            loop.train_without_loader(gpu_us=60)

    assert loop.gpu.recorded * 30 <= 0.0025 * 500 * 2_400
    seen = loop.seen()
    assert len(seen["gpu_step"]) >= 7
    assert lengths_us(seen["gpu_backward"])[4:] == [pytest.approx(35, abs=15)] * (len(seen["gpu_backward"]) - 4)
    if has_loader:
        assert 5 <= len(seen["gpu_idle"]) < len(seen["gpu_step"])
    else:
        assert "gpu_idle" not in seen


def test_what_it_takes_to_read_events_counts_as_what_it_takes_to_record_them(loop: Loop) -> None:
    loop.gpu.started, loop.gpu.recording_ns, loop.gpu.reading_ns = True, 10 * US, 20 * US
    for _ in range(500):
        loop.pass_us(2_400)
        loop.train(gpu_us=60)

    assert loop.gpu.recorded * 10 + loop.gpu.read * 20 <= 0.0025 * 500 * 2_400
    assert loop.gpu.read >= 20


def test_nothing_waits_for_the_gpu_before_the_end(loop: Loop) -> None:
    loop.gpu.started = True
    for _ in range(20):
        loop.train(gpu_us=3_000)
    assert loop.gpu.synchronised == 0

    assert len(loop.seen()["gpu_step"]) == 19
    assert loop.gpu.synchronised == 1


def test_events_are_used_again(loop: Loop) -> None:
    loop.gpu.started = True
    for _ in range(60):
        loop.train(gpu_us=9)

    assert loop.gpu.made < 20


def test_what_a_test_pass_did_on_the_gpu_is_not_called_idle(loop: Loop) -> None:
    loop.gpu.started = True
    for _ in range(3):
        loop.train()
    testing = loop.steps.iterated(loop.pass_us(1), 2, False)
    for _ in range(2):
        loop.steps.finish()
        loop.steps.fetched(testing, loop.gpu.host_ns, loop.pass_us(5))
        loop.gpu.work(900 * US)
    loop.steps.exhausted(testing, loop.pass_us(1))
    for _ in range(3):
        loop.train()

    seen = loop.seen()
    assert [step for step, _, _ in seen["gpu_step"]] == [1, 2, 3, 4, 5]
    assert [step for step, _, _ in seen["gpu_idle"]] == [2, 4, 5]


def test_a_script_that_never_uses_a_gpu_has_no_events(loop: Loop) -> None:
    for _ in range(5):
        loop.train()

    assert not [name for name in loop.seen() if name.startswith("gpu")]
    assert loop.gpu.made == 0


def test_no_event_is_recorded_into_a_graph_that_is_being_captured(loop: Loop) -> None:
    loop.gpu.started = True
    loop.train()
    loop.train()
    made = loop.gpu.made
    loop.gpu.capturing = True
    loop.train()
    loop.gpu.capturing = False

    assert loop.gpu.made == made
    assert 2 not in [step for step, _, _ in loop.seen().get("gpu_step", [])]


def test_a_step_that_is_left_out_asks_the_gpu_nothing(loop: Loop) -> None:
    loop.gpu.started, loop.gpu.recording_ns = True, 30 * US
    for _ in range(20):
        loop.pass_us(2_400)
        loop.train(gpu_us=60)
    asked = []
    loop.steps.gpu._capturing = lambda: bool(asked.append(1))
    for _ in range(10):
        loop.pass_us(2_400)
        loop.train(gpu_us=60)
    assert not asked
