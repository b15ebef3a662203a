"""Cases for the claims of S0: see `claim_case`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from claim_case import MODELS, STEP, Case, cell, levels, two
from claimed import DEVICE, Cell


def _by_model(x: float) -> list[Cell]:
    """The lightest model loses x more than the heaviest."""
    return [
        cell({"platform": platform, "workload.model": model}, {"compute_s": size * (1 + cost)})
        for model, size, share in zip(MODELS, (1.0, 10.0, 9.0), (1.0, 0.4, 0.0), strict=True)
        for platform, cost in (("bare", 0.0), ("docker", 0.02 + x * share))
    ]


def _training_and_inference(x: float) -> list[Cell]:
    return [
        cell({"platform": platform, "workload": workload}, {figure: STEP * (1 + (platform != "bare") * cost)})
        for workload, figure, cost in (("torch_train", "compute_s", 0.05 + x), ("torch_infer", "inference_s", 0.05))
        for platform in ("bare", "docker")
    ]


def _phases(x: float) -> list[Cell]:
    plain = {"forward_s": 2.0, "backward_s": 4.0, "optimiser_s": 1.0}
    grown = {"forward_s": 2.2, "backward_s": 4.2, "optimiser_s": 1.1 * (1 + x)}
    return [cell({}, plain), cell({"platform": "docker"}, grown)]


def _tax_at_clocks(clock: str) -> Callable[[float], list[Cell]]:
    """The container costs 5 % at the high clock, and x more at the low one."""
    return lambda x: [
        cell(
            {"platform": platform, f"control.power_mode.{name}": mhz, "control.power_mode.mode": f"{name} {mhz}"},
            {"compute_s": STEP * 1000 / mhz * (1 + (platform != "bare") * (0.05 + x * (mhz < 1000)))},
        )
        for name in clock.split()
        for mhz, platform in product((500, 1500), ("bare", "docker"))
    ]


def _energy_split(x: float) -> list[Cell]:
    """Bare metal takes 30 J of baseload and 70 J more; the container 10 J more, of which x is baseload."""
    plain = {"energy_j": 100.0, "energy_baseload_j": 30.0}
    return [
        cell({}, plain),
        cell({"platform": "docker"}, {"energy_j": 110.0, "energy_baseload_j": 30.0 + 10 * x}),
    ]


def _memory(x: float) -> list[Cell]:
    """The container adds x of the device's memory."""
    whole = DEVICE["memory_bytes"]
    return [
        cell({"platform": name}, {"memory_median_bytes": whole * (0.1 + add)})
        for name, add in (("bare", 0), ("docker", x))
    ]


def _each_model(x: float) -> list[Cell]:
    return [
        cell(
            {"platform": platform, "workload": "torch_train", "workload.model": model},
            {"compute_s": time, "step_s": time},
        )
        for model, size in zip(MODELS, (1.0, 10.0, 9.0), strict=True)
        for platform, time in (("bare", size), ("docker", size * (1 + x)))
    ]


def _uses(x: float) -> list[Cell]:
    """In a container the GPU is used by x less and the CPU by x more; of LeNet-5 nothing changes."""
    return [
        cell(
            {"platform": platform, "workload": "torch_train", "workload.model": model},
            {"compute_s": STEP, "gpu_util_share": 0.6 * (1 - change), "cpu_busy_share": 0.2 * (1 + change)},
        )
        for model, effect in (("lenet5", 0.0), ("mobilenet_v3_large", x))
        for platform, change in (("bare", 0.0), ("docker", effect))
    ]


def _energies(x: float) -> list[Cell]:
    """Training takes x more energy in a container, inference as much as on bare metal."""
    return [
        cell({"platform": platform, "workload": workload, "workload.model": "lenet5"}, {"energy_step_j": 1 + cost})
        for workload, cost_inside in (("torch_train", x), ("torch_infer", 0.0))
        for platform, cost in (("bare", 0.0), ("docker", cost_inside))
    ]


S0 = {
    "s0.compute-rises-for-all-models": Case(_each_model, 0.3, 0.0, 0.04),
    "s0.container-cost-is-negligible": Case(_each_model, 0.0, 0.3, 0.04),
    "s0.gpu-use-falls-and-cpu-use-rises": Case(_uses, 0.2, 0.0, 0.04),
    "s0.inference-energy-rises-less": Case(_energies, 0.3, 0.0, 0.03),
    "s0.instrumentation-slows-containers": Case(
        levels("workload.phases", lambda timed, x: {"step_s": STEP * (1 + timed * x)}, True, False,
               platform="docker", workload="torch_train"),
        0.2, 0.0, 0.02,
    ),
    "s0.lighter-models-lose-more": Case(_by_model, 0.5, 0.0, 0.02),
    "s0.inference-loses-less": Case(_training_and_inference, 0.3, 0.0, 0.03),
    "s0.optimiser-step-grows-most": Case(_phases, 1.0, -0.2, 0.04),
    "s0.lower-cpu-clock-makes-it-worse": Case(_tax_at_clocks("cpu_mhz"), 0.3, 0.0, 0.03),
    "s0.gpu-and-memory-clocks-do-not": Case(_tax_at_clocks("gpu_mhz mem_mhz"), 0.0, 0.3, 0.03),
    "s0.more-system-calls": Case(two("system_calls", 5000.0), 0.4, 0.0, 0.03),
    "s0.seccomp-off-changes-nothing": Case(
        levels("platform.seccomp", lambda on, x: {"step_s": STEP * (1 + on * x)}, True, False, platform="docker"),
        0.0, 0.2, 0.04,
    ),
    "s0.total-energy-rises": Case(two("energy_step_j"), 0.2, 0.0, 0.02),
    "s0.energy-rise-is-baseload": Case(_energy_split, 0.9, 0.1, 0.5, noise=0.01),
    "s0.memory-cost-is-small": Case(_memory, 0.005, 0.2, 0.022, noise=0.15),
}  # fmt: skip
