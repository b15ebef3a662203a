"""Cases for the claims of S3: see `claim_case`."""

from __future__ import annotations

from itertools import product
from typing import Any

from claim_case import STEP, Case, cell, levels
from claimed import DEVICE, Cell

BATCH, DVFS = "workload.batch", "control.dvfs.state"


def _batches(x: float) -> list[Cell]:
    """On a GPU, time an item is halved from 1 to 4 and does not change any more, or (x = 1) never changes."""
    an_item = {batch: x + (1 - x) * time for batch, time in ((1, 1.0), (2, 0.7), (4, 0.5), (8, 0.5))}
    return [
        cell({BATCH: batch, "workload.device": "cuda"}, {"step_mean_s": STEP * batch * time})
        for batch, time in an_item.items()
    ]


def _board(name: str) -> dict[str, Any]:
    return {"device": {**DEVICE, "board": "NX", "id": name}}


def _devices(x: float) -> list[Cell]:
    return [
        cell({}, {"step_s": STEP * (1 + x * (name == "nx2"))}, facts=_board(name), store=place)
        for place, name in enumerate(("nx1", "nx2"))
    ]


def _versions(x: float) -> list[Cell]:
    return [
        cell(
            {},
            {"step_s": STEP * (1 + x * (version == "2.0"))},
            facts={"inside": {"torch": {"version": version}}},
            store=place,
        )
        for place, version in enumerate(("1.8", "2.0"))
    ]


def _dvfs(x: float) -> list[Cell]:
    return [
        cell({DVFS: on}, {"step_s": STEP * (1 + x * (on == "on")), "energy_step_j": 2.0, "gpu_clock_hz": clock})
        for on, clock in (("on", 0.9e9), ("off", 1.3e9))
    ]


def _default_mode(x: float) -> list[Cell]:
    """The default is slower than 30W by 10 %, and takes x more energy."""
    return [
        cell({"control.power_mode.mode": mode}, {"step_s": time, "energy_step_j": energy})
        for mode, time, energy in (("15W", 1.1, 1.0 + x), ("30W", 1.0, 1.0))
    ]


def _baseload(x: float) -> list[Cell]:
    return [
        cell({"workload.model": model}, {"energy_j": 100.0, "energy_baseload_j": 100.0 * share})
        for model, share in (("lenet5", x), ("resnet18", 0.2 * x))
    ]


def _mode(**fields: int) -> dict[str, Any]:
    """A power mode as records have it: its fields, and their names once more in `mode`."""
    label = ", ".join(f"{name} {value}" for name, value in fields.items())
    return {f"control.power_mode.{name}": value for name, value in fields.items()} | {"control.power_mode.mode": label}


def _gpu_clocks(x: float) -> list[Cell]:
    """At twice the GPU clock LeNet-5 gains nothing, and ResNet-18 x."""
    return [
        cell({"workload.model": model, **_mode(gpu_mhz=mhz)}, {"compute_s": STEP * (1 - gain * (mhz > 600))})
        for model, gain in (("lenet5", 0.0), ("resnet18", x))
        for mhz in (600, 1200)
    ]


def _memory_clocks(x: float) -> list[Cell]:
    """At twice the memory clock the stall is 30 % shorter, and compute x."""
    return [
        cell(
            _mode(mem_mhz=mhz),
            {"stall_mean_s": STEP * (1 - 0.3 * (mhz > 1066)), "compute_s": STEP * (1 - x * (mhz > 1066))},
        )
        for mhz in (1066, 2133)
    ]


def _cpu_and_cores(x: float) -> list[Cell]:
    """Stall and compute both fall, by x from the lowest clock to the highest and by 30 % from 2 cores to 8."""
    return [
        cell(
            _mode(cpu_mhz=mhz, cores=cores),
            {
                "stall_mean_s": STEP * (1 - x * (mhz > 1000)) * (1 - 0.3 * (cores > 2)),
                "compute_s": STEP * (1 - x * (mhz > 1000)) * (1 - 0.3 * (cores > 2)),
            },
        )
        for mhz, cores in product((1000, 2000), (2, 8))
    ]


def _mode_grid(bent: float, dear: float) -> list[Cell]:
    """Time falls with clocks on a plane, or bent; energy goes with the plane, with the time, or is off it."""
    made = []
    for model, size in (("lenet5", 1.0), ("resnet18", 4.0)):
        for cores, cpu, gpu in product((2, 4, 8), (1000, 2000), (500, 1300)):
            plane = 3.0 - 0.05 * cores - 4e-4 * cpu - 5e-4 * gpu
            time = size * plane * (1 + bent * ((cores + cpu // 1000 + gpu // 500) % 3))
            joules = 10 * plane if dear < 0 else 10 * time * (1 + dear * ((cores // 2 + cpu // 500 + gpu // 300) % 4))
            settings = _mode(cores=cores, cpu_mhz=cpu, gpu_mhz=gpu)
            made.append(cell({"workload.model": model, **settings}, {"step_s": time, "energy_step_j": joules}))
    return made


def _pipelined(x: float) -> list[Cell]:
    """Without workers MobileNet waits for 60 % of its step and ResNet for 5 %; workers save MobileNet x of the step."""
    return [
        cell(
            {"workload": "torch_train", "workload.model": model, "workload.workers": workers},
            {"step_mean_s": STEP * (1 - saved * (workers > 0)), "stall_mean_s": STEP * waits / (1 + 9 * (workers > 0))},
        )
        for model, waits, saved in (("mobilenet_v3_large", 0.6, x), ("resnet18", 0.05, 0.02))
        for workers in (0, 4)
    ]


def _media(x: float) -> list[Cell]:
    """Epoch 0 from a hard disk takes x more than from an SSD for large items, and no more for small ones."""
    return [
        cell(
            {
                "workload": "torch_train",
                "workload.data": data,
                "workload.workers": 0,
                "control.storage.emulate": medium,
            },
            {"epoch0_step_mean_s": STEP * (1 + cost * (medium == "hdd")), "step_s": STEP},
        )
        for data, cost in (("gld23k", x), ("mnist", 0.0))
        for medium in ("hdd", "ssd")
    ]


def _idle(x: float) -> list[Cell]:
    """DVFS saves x of the idle power; logging adds 2 %."""
    return [
        cell(
            {"workload": "idle", DVFS: state, "workload.logging": logging},
            {"power_mean_w": 10.0 * (1 - x * (state == "on")) * (1 + 0.02 * logging)},
        )
        for state, logging in product(("off", "on"), (True, False))
    ]


def _clock_and_energy(x: float) -> list[Cell]:
    """At the highest clock ten times as fast, with 3.6 times the power and x less energy."""
    return [
        cell(
            {"workload": "torch_train", **_mode(gpu_mhz=mhz)},
            {"step_mean_s": STEP / fast, "power_mean_w": 8.0 * power, "energy_step_j": 2.0 * energy},
        )
        for mhz, fast, power, energy in ((115, 1.0, 1.0, 1.0), (1377, 10.0, 3.6, 1 - x))
    ]


def _energy_by_mode(x: float) -> list[Cell]:
    """Below the highest clock the modes of ResNet-18 differ by x in energy, those of LeNet-5 by 27 %."""
    return [
        cell(
            {"workload": "torch_train", "workload.model": model, **_mode(gpu_mhz=mhz, cores=8)},
            {"energy_step_j": 2.0 * (1 + spread * share), "step_s": STEP},
        )
        for model, spread in (("lenet5", 0.27), ("resnet18", x))
        for mhz, share in ((420, 1.0), (670, 0.5), (900, 0.0), (1377, 3.0))
    ]


S3 = {
    "s3.gain-of-pipelining-depends-on-the-model": Case(_pipelined, 0.5, 0.02, 0.07),
    "s3.medium-matters-by-io-pressure": Case(_media, 0.5, 0.0, 0.05),
    "s3.energy-varies-little": Case(
        lambda x: [cell({"workload": "torch_train"}, {"energy_epoch_farthest_share": x})], 0.02, 0.3, 0.09, noise=0.4
    ),
    "s3.idle-power-by-state": Case(_idle, 0.3, 0.0, 0.05),
    "s3.low-gpu-clock-costs-energy": Case(_clock_and_energy, 0.6, -0.3, 0.05),
    "s3.energy-by-mode-is-modest": Case(_energy_by_mode, 0.06, 0.5, 0.15),
    "s3.larger-batches-until-saturation": Case(_batches, 0.0, 1.0, 0.9, noise=0.15),
    "s3.stall-rises-a-batch-and-falls-an-epoch": Case(
        levels(BATCH, lambda batch, x: {"stall_mean_s": STEP * batch ** x}, 4, 16, 64), 0.5, 1.3, 0.985
    ),
    "s3.epochs-vary-little": Case(
        lambda x: [cell({}, {"step_s": STEP}, epochs=(1.3, 1 + x, 1 - x, *[1.0] * 9))], 0.01, 0.2, 0.05
    ),
    "s3.devices-vary-little": Case(_devices, 0.0, 0.3, 0.09),
    "s3.software-varies-a-lot": Case(_versions, 0.4, 0.0, 0.06),
    "s3.dvfs-changes-clocks-only": Case(_dvfs, 0.0, 0.2, 0.04),
    "s3.default-mode-may-not-be-pareto": Case(
        _default_mode, 0.2, -0.2, 0.0, study={"compare": {"against": {"control.power_mode": "15W"}}}
    ),
    "s3.baseload-dominates-light-models": Case(_baseload, 0.8, 0.2, 0.5),
    "s3.heavier-models-gain-more-from-gpu-clock": Case(_gpu_clocks, 0.4, 0.0, 0.03),
    "s3.cpu-clock-and-cores-cut-stall": Case(_cpu_and_cores, 0.3, 0.0, 0.03),
    "s3.memory-clock-matters-for-both": Case(_memory_clocks, 0.3, 0.0, 0.03),
    "s3.four-modes-predict-time": Case(lambda x: _mode_grid(x, 0.0), 0.0, 0.6, 0.17, noise=0.05),
    "s3.most-predictions-are-close": Case(lambda x: _mode_grid(x, 0.0), 0.0, 0.6, 0.0, noise=0.05),
    "s3.energy-is-harder-to-predict": Case(lambda x: _mode_grid(0.02, x), 0.5, -1.0, 0.0, noise=0.003),
}  # fmt: skip
