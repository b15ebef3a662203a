"""Cases for the claims of S4: see `claim_case`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from claim_case import Case, cell
from claimed import DEVICE, Cell

CORES, PIN = "platform.cores", "platform.pin"


def _scale_up(x: float) -> list[Cell]:
    """From 4 to 16 cores the time is halved, or (x = 1) does not change, and from 16 to 32 cores it never does."""
    times = {4: 1.0, 16: 0.5 + 0.5 * x, 32: 0.5 + 0.5 * x}
    return [cell({CORES: cores, "workload": "application"}, {"step_s": time}) for cores, time in times.items()]


def _few_cores(x: float) -> list[Cell]:
    """A vanilla container costs x more on 2 cores, half of that on 8 and nothing on 32."""
    return [
        cell(
            {"platform": platform, CORES: cores, PIN: False}, {"step_s": (1 + x * share * (platform != "bare")) / cores}
        )
        for cores, share in ((2, 1.0), (8, 0.5), (32, 0.0))
        for platform in ("bare", "docker")
    ]


def _applications(x: float) -> list[Cell]:
    """Questions are all inference and three times as fast on the GPU; images are mostly decoding, and gain x."""
    made = []
    for device, gain in (("cpu", 0), ("cuda", 1)):
        image, question = 1.0 * (1 - x * gain), 3.0 / (1 + 2 * gain)
        for name, step, inference in (("image", image, 0.2), ("question", question, 0.9 * question)):
            settings = {"workload": "application", "workload.name": name, "workload.device": device}
            made.append(cell(settings, {"step_s": step, "inference_s": inference}))
    return made


def _overstated(x: float) -> list[Cell]:
    """Inference is nine times as fast on the GPU; the whole is as much faster, less x."""
    return [
        cell({"workload": "application", "workload.device": "cpu"}, {"step_s": 1.0, "inference_s": 0.5}),
        cell({"workload": "application", "workload.device": "cuda"}, {"step_s": (1 + x) / 9, "inference_s": 0.5 / 9}),
    ]


def _platforms(x: float, facts: Mapping[str, Any] | None = None) -> list[Cell]:
    """A container costs 2 %, a VM 10 % and a container in a VM x more than a VM."""
    times = {"bare": 1.0, "docker": 1.02, "qemu": 1.1, "qemu+docker": 1.1 * (1 + x)}
    return [cell({"platform": name}, {"step_s": time}, facts=facts or {}) for name, time in times.items()]


def _edge(x: float) -> list[Cell]:
    """On a board a container costs 2 %, and a VM x more."""
    board = {"device": {**DEVICE, "board": "Raspberry Pi 4 Model B"}}
    return [
        cell({"platform": name}, {"step_s": time}, facts=board)
        for name, time in (("bare", 1.0), ("docker", 1.02), ("qemu", 1.02 * (1 + x)))
    ]


def _no_idle_core(x: float) -> list[Cell]:
    """Two cores, for bare metal all that are switched on, and for a VM two of four."""
    bare = cell({"control.power_mode.cores": 2}, {"step_s": 1.0}, facts=placed(2, 2))
    return [bare, cell({"platform": "qemu", CORES: 2}, {"step_s": 1 - x}, facts=placed(2, 4))]


def pinning(x: float, bare: float = 0.0, costs: float = 0.3, facts: Mapping[str, Any] | None = None) -> list[Cell]:
    """A container costs three tenths, and pinned less by x; whatever is pinned takes `bare` less, bare metal too."""
    return [
        cell({"platform": platform, PIN: pin}, {"step_s": (1 - bare * pin) * cost}, facts=facts or {})
        for pin in (True, False)
        for platform, cost in (("bare", 1.0), ("docker", (1 + costs) * (1 - x * pin)))
    ]


def placed(used: int, there: int) -> dict[str, Any]:
    """What a record says of its cores."""
    return {"place": {"usable_cores": float(used), "host_cores": there, "chr": used / there}}


def _all_cores(x: float) -> list[Cell]:
    """On all four cores of the host a VM takes x longer than bare metal, and a container in one too."""
    times = {"bare": 1.0, "qemu": 1 + x, "qemu+docker": 1 + x}
    return [
        cell({"platform": name, "platform.leave_idle": 0}, {"step_s": time}, facts=placed(4, 4))
        for name, time in times.items()
    ]


def _sockets(x: float) -> list[Cell]:
    """A socket has 40 cores: 64 take x longer than 32."""
    facts = {"device": {**DEVICE, "cpu.socket": "0-39"}}
    return [cell({CORES: cores}, {"step_s": time}, facts=facts) for cores, time in ((16, 1.2), (32, 1.0), (64, 1 + x))]


def _image_on_gpu(x: float) -> list[Cell]:
    settings = {"workload": "application", "workload.name": "image", "workload.device": "cuda"}
    return [cell({**settings, CORES: cores}, {"step_s": 1 + x * place}) for place, cores in enumerate((4, 16, 64))]


def _question(x: float) -> list[Cell]:
    """On either platform a GPU is x times as fast."""
    settings = {"workload": "application", "workload.name": "question"}
    return [
        cell(
            {**settings, "platform": platform, "workload.device": device},
            {"step_s": 1 / (x if device == "cuda" else 1)},
        )
        for platform in ("bare", "docker")
        for device in ("cpu", "cuda")
    ]


def _rest_of_a_request(x: float) -> list[Cell]:
    """Half of a request is inference on the CPU, and x of that on the GPU."""
    return [
        cell({"workload": "application", "workload.device": device}, {"step_s": 1.0, "inference_s": inference})
        for device, inference in (("cpu", 0.5), ("cuda", 0.5 * x))
    ]


def _from_a_disk(x: float) -> list[Cell]:
    """From a hard disk questions take x longer in a VM than in a container, and images no longer."""
    return [
        cell(
            {"platform": platform, "workload": "application", "workload.name": name, "control.storage.emulate": "hdd"},
            {"step_s": 1 + cost * (platform == "qemu")},
        )
        for name, cost in (("image", 0.0), ("question", x))
        for platform in ("docker", "qemu")
    ]


S4 = {
    "s4.machines-are-slower-without-an-idle-core": Case(_all_cores, 0.3, 0.0, 0.05),
    "s4.more-than-one-socket-is-slower": Case(_sockets, 0.3, 0.0, 0.05),
    "s4.gpu-time-rises-with-cores": Case(_image_on_gpu, 0.2, 0.0, 0.025),
    "s4.questions-gain-over-3x-on-a-gpu": Case(_question, 4.0, 2.0, 3.0),
    "s4.pre-and-post-processing-become-the-bottleneck": Case(_rest_of_a_request, 0.2, 1.0, 0.95),
    "s4.storage-parts-platforms-by-input": Case(_from_a_disk, 0.3, 0.0, 0.05),
    "s4.e2e-stops-improving": Case(_scale_up, 0.0, 1.0, 0.9, noise=0.15),
    "s4.vanilla-container-with-few-cores-is-an-outlier": Case(_few_cores, 0.5, 0.0, 0.03),
    "s4.pinning-lowers-the-overhead": Case(pinning, 0.2, 0.0, 0.03),
    "s4.bare-without-idle-core-can-be-slower": Case(_no_idle_core, 0.2, -0.2, 0.03),
    "s4.gpu-helps-only-where-inference-dominates": Case(_applications, 0.0, 0.4, 0.05),
    "s4.inference-only-overstates": Case(_overstated, 3.0, 0.0, 0.03),
    "s4.micro-vm-is-not-faster": Case(
        lambda x: [cell({"platform": name}, {"step_s": time}) for name, time in (("qemu", 1.0), ("microvm", 1 - x))],
        0.0, 0.3, 0.05,
    ),
    "s4.container-in-vm-costs-most": Case(_platforms, 0.2, -0.2, 0.03),
    "s4.container-costs-least-on-the-edge": Case(_edge, 0.3, -0.2, 0.05),
}  # fmt: skip
