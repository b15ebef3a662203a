"""How a step is timed on a GPU, with one of numbers: what really happened is known to the nanosecond."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from pretend_gpu import MS, US, Loader, PretendGpu
from tare.figures.steps import Steps, step_metrics, steps_from
from tare.parts.protocols import Mark
from tare_inside import activity, marks
from tare_inside import gpu as gpu_clock
from tare_inside import gpu as gpu_marks
from tare_inside.programs.cold_epochs import Between
from tare_inside.workloads.programs import train
from tare_inside.workloads.programs.training_loop import Checkpoints

STEPS, EPOCHS = 20, 3
FORWARD, BACKWARD, OPTIMISER = 2 * MS, 5 * MS, 1 * MS
COPY = 300 * US


def timed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fetch_ns: int, **changes: Any
) -> tuple[Steps, dict[str, Any], PretendGpu]:
    """Three epochs of a network with three kernels, timed as `train.run` times it."""
    gpu = PretendGpu(rate=changes.pop("rate", 1.0))
    job = {"device": "cuda", "timing": "async", "phases": False, "marked": True, "marks": str(folder / "m")} | {
        name: value for name, value in changes.items() if name != "window"
    }
    monkeypatch.setattr(torch.cuda, "Event", gpu.Event)
    monkeypatch.setattr(torch.cuda, "synchronize", gpu.synchronize)
    for module in (marks, gpu_clock):
        monkeypatch.setattr(module, "now_ns", gpu.now_ns)

    def forward(inputs: Any, labels: Any) -> Any:
        gpu.launch(FORWARD)
        return inputs

    parts = (forward, lambda loss: gpu.launch(BACKWARD), lambda: gpu.launch(OPTIMISER))
    marks.open_marks(job["marks"], 4096)
    try:
        ready, clock = train.arranged(job, Loader(gpu, fetch_ns, COPY), parts, EPOCHS, STEPS, marked=True)
        gpu.waits = 0
        ready = ready._replace(freshen=Between(str(folder)))
        window = changes.get("window") and changes["window"](gpu, str(folder))
        if window:
            ready = ready._replace(stepped=window.fetched_and_stepped)
        _, said = train.trained(job, ready, clock, Checkpoints(job, dict), window)
        if window:
            window.close()
    finally:
        marks.close_marks()
    rows, lost = marks.load(job["marks"])
    assert lost == 0
    found = steps_from(Mark(*row) for row in rows)
    assert found is not None
    return found, said, gpu


def parts_s(steps: Steps) -> Any:
    return steps.seconds["fetch"] + steps.seconds["copy"] + steps.seconds["compute"]


@pytest.mark.parametrize("timing", ["sync", "async"])
@pytest.mark.parametrize("fetch_ms", [1, 30])
@pytest.mark.parametrize("phases", [False, True])
def test_the_marks_of_every_step_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timing: str, fetch_ms: int, phases: bool
) -> None:
    steps, _, _ = timed(tmp_path, monkeypatch, fetch_ms * MS, timing=timing, phases=phases)

    assert len(steps.numbers) == EPOCHS * STEPS
    assert steps.warm_up == STEPS  # epoch 0, also where the host was ahead of the GPU when it ended
    overhead = steps.seconds["step"] - parts_s(steps)
    assert (overhead >= -1e-9).all()
    assert (overhead[1:] < 0.01 * steps.seconds["step"][1:]).all()
    if phases:
        three = sum(steps.seconds[name] for name in ("forward", "backward", "optimiser"))
        assert three == pytest.approx(steps.seconds["compute"], rel=0.01)


def test_a_wait_that_the_gpu_did_not_notice_is_no_stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, _, _ = timed(tmp_path, monkeypatch, fetch_ns=3 * MS)
    metrics = step_metrics(steps)

    assert metrics["host_fetch_s"] == pytest.approx(0.003, rel=0.01)
    assert metrics["stall_s"] == 0
    assert metrics["gpu_idle_s"] == 0
    assert metrics["step_s"] == metrics["gpu_step_s"] == pytest.approx(0.0083, rel=0.01)
    assert metrics["compute_s"] == pytest.approx(0.008, rel=0.01)
    parts = {name: metrics[f"gpu_{name}_s"] for name in ("copy", "forward", "backward", "optimiser")}
    assert parts == pytest.approx(
        {"copy": COPY / 1e9, "forward": FORWARD / 1e9, "backward": BACKWARD / 1e9, "optimiser": OPTIMISER / 1e9},
        rel=0.05,
    )
    assert metrics["copy_s"] == pytest.approx(COPY / 1e9, rel=0.05)


def test_a_wait_that_left_the_gpu_idle_is_a_stall_as_far_as_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, _, _ = timed(tmp_path, monkeypatch, fetch_ns=30 * MS)
    metrics = step_metrics(steps)

    # The host asks for the next batch while the GPU computes for 8 ms: 22 of the 30 ms are seen.
    assert metrics["host_fetch_s"] == pytest.approx(0.030, rel=0.01)
    assert metrics["stall_s"] == pytest.approx(0.022, rel=0.02)
    assert metrics["gpu_idle_s"] == pytest.approx(0.022, rel=0.02)
    assert metrics["step_s"] == pytest.approx(0.0303, rel=0.01)


def test_async_waits_for_nothing_in_the_loop_and_sync_after_each_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    around = 2 * 2 * gpu_clock.ANCHOR_TRIES + 1  # both anchors, and the end of the training
    counts = {}
    for name, changes in {
        "async": {},
        "async with phases": {"phases": True},
        "sync": {"timing": "sync"},
        "sync with phases": {"timing": "sync", "phases": True},
    }.items():
        (tmp_path / name).mkdir()
        _, _, gpu = timed(tmp_path / name, monkeypatch, MS, **changes)
        counts[name] = (gpu.waits - around) / (EPOCHS * STEPS)

    # With sync, moving the two tensors waits as well: that is what `.to` does.
    assert counts == {"async": 0, "async with phases": 0, "sync": 4, "sync with phases": 7}


def test_sync_keeps_the_hosts_times_and_has_the_gpus_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, _, _ = timed(tmp_path, monkeypatch, fetch_ns=3 * MS, timing="sync")
    metrics = step_metrics(steps)

    assert metrics["stall_s"] == pytest.approx(0.003, rel=0.01)
    assert metrics["compute_s"] == pytest.approx(0.008, rel=0.01)
    assert metrics["gpu_step_s"] == pytest.approx(0.0083, rel=0.01)
    assert metrics["gpu_forward_s"] == pytest.approx(0.002, rel=0.01)
    assert metrics["gpu_idle_s"] == pytest.approx(0.003, rel=0.05)
    assert "host_step_s" not in metrics


class DearProfiler:
    """Takes a fifth of a second of the host to start and to stop, and has seen one kernel a step."""

    def __init__(self, gpu: PretendGpu) -> None:
        self._gpu = gpu

    def is_in_use(self) -> bool:
        return False

    def start(self, on_conflict: Any) -> None:
        self._gpu.spend(200 * MS)

    def stop(self) -> object:
        self._gpu.spend(200 * MS)
        return self

    def read(self, results: object) -> list[Any]:
        at = range(10**15, 10**15 + 2000 * MS, 10 * MS)
        calls = [("cudaLaunchKernel", False, t_ns, t_ns + US, number, 0) for number, t_ns in enumerate(at)]
        return calls + [("gemm", True, t_ns + US, t_ns + 6 * MS, number, 0) for number, t_ns in enumerate(at)]


def test_what_the_window_costs_is_in_no_time_of_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def window(gpu: PretendGpu, folder: str) -> activity.Window:
        return activity.Window(DearProfiler(gpu), folder, gpu, wall_ns=gpu.now_ns)

    (tmp_path / "with").mkdir()
    _, plain, _ = timed(tmp_path, monkeypatch, fetch_ns=3 * MS, timing="sync")
    steps, said, _ = timed(tmp_path / "with", monkeypatch, fetch_ns=3 * MS, timing="sync", window=window)

    assert said["train_s"] == pytest.approx(plain["train_s"], rel=0.02)
    assert said["epoch0_s"] == pytest.approx(plain["epoch0_s"], rel=0.05)
    assert steps.warm_up >= STEPS
    assert step_metrics(steps)["step_s"] == pytest.approx(0.0113, rel=0.02)
    seen = json.loads((tmp_path / "with" / activity.FILE).read_text())
    assert seen["busy_share"] == pytest.approx(0.6, abs=0.01)


def test_clocks_that_drift_are_brought_together_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = PretendGpu(rate=1 + 2e-4)
    monkeypatch.setattr(gpu_clock, "now_ns", gpu.now_ns)
    clock = gpu_clock.GpuClock(gpu, 2000)
    clock.start()
    really_ns = []
    for _ in range(2000):
        gpu.launch(5 * MS)
        clock.tick()
        really_ns.append(gpu.free_ns)
    clock.stop()
    placed_ns, said = clock.place()

    errors_ns = [abs(placed - really) for placed, really in zip(placed_ns, really_ns, strict=True)]
    assert said["drift_s"] == pytest.approx(0.002, rel=0.05)  # 10 s at 200 ppm
    assert max(errors_ns) / 1e9 <= said["uncertainty_s"] + 2e-6
    assert said["uncertainty_s"] < 20e-6


def test_a_row_that_was_cut_short_tells_of_the_whole_steps() -> None:
    assert gpu_marks.by_step([1, 2, 3, 4, 5, 6, 7], gpu_marks.INFERENCE) == [[1, 2, 3], [4, 5, 6]]
    assert gpu_marks.by_step([1, 2, 3, 4], gpu_marks.training()) == []
