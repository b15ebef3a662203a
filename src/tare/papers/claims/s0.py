"""S0: containerised training and inference on a Jetson AGX Orin, bare metal against Docker.

The authors superseded the headline later (arXiv 2312.07220v2: overheads are negligible), so each of these may well fail
on sound measurements, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from tare.ext.analysis import Record, grouped
from tare.papers.claims import metrics
from tare.papers.claims.checks import by_clocks, conditions, each, tendency
from tare.papers.claims.metrics import (
    WORDS,
    Cell,
    Factor,
    Names,
    factor_named,
    infers,
    is_bare,
    is_container,
    level,
    trains,
)
from tare.papers.claims.model import (
    Cells,
    Check,
    Claim,
    Look,
    Population,
    Wants,
    against,
    falling,
    joined,
    minus,
    pooled,
    trend,
    where,
)

NO_PAIR = "no trial in a container has its like on bare metal"
NEGLIGIBLE = 0.05  # v2 does not say how little; this is the margin of every study of the paper
SMALL_MEMORY = 0.02  # of the device's memory: what the paper found is 0.5 to 1.1 % of 32 GB
BOARD_BYTES = 32e9  # of a server's hundreds of gigabytes any job would be a small share


def in_containers(evidence: Population, names: Names, among: Callable[[Record], bool] = lambda _: True) -> Cells:
    """A figure in each container, less the same on bare metal."""
    return evidence.over(evidence.cells(names, among), is_container)


def no_pair(evidence: Population, names: Names, what: str = "trial") -> str:
    """Why there is nothing to compare: the figure is not there, or one of the sides."""
    return evidence.absent(names) if evidence.first(names) is None else NO_PAIR.replace("trial", what)


def container_figure(evidence: Population, names: Names, wants: Wants, *, margin: float = 0.05) -> Look:
    """A figure in containers against bare metal, over all cells."""
    about, cells = f"{WORDS[names]}, container against bare metal", in_containers(evidence, names)
    made = tendency(about, cells, wants, margin=margin, floor=evidence.floor(names))
    return Look.of(made, no_pair(evidence, names))


def lighter_models_lose_more(evidence: Population) -> Look:
    cells = in_containers(evidence, metrics.COMPUTE, trains)
    model = factor_named(cells, "model")
    if model is None:
        return Look(missing=[no_pair(evidence, metrics.COMPUTE, "training")])
    # Data, image size and what else goes with a model must not part it from the others.
    found = trend(by_model(cells, model), model, evidence.model_order.get)
    made = tendency("container cost of training, from the lightest model to the heaviest", found, "falls")
    return Look.of(made, "only one model was trained in a container and on bare metal")


def inference_loses_less(evidence: Population) -> Look:
    found = inference_less_training(evidence, metrics.COMPUTE)
    made = tendency("container cost of inference against that of training", found or {}, "falls")
    return Look.of(made, _NOT_BOTH_ON_BOTH if found is None else _NOT_BOTH)


_NOT_BOTH = "no model was both trained and used for inference"
_NOT_BOTH_ON_BOTH = f"{_NOT_BOTH}, in a container and on bare metal"


def inference_less_training(evidence: Population, names: Names) -> Cells | None:
    """What a container costs inference less what it costs training, by model; None where either was not measured."""
    training, inference = (in_containers(evidence, names, kind) for kind in (trains, infers))
    model = factor_named({**training, **inference}, "model")
    if model is None or not training or not inference:
        return None
    return minus(by_model(inference, model), by_model(training, model))


def by_model(cells: Cells, model: Factor) -> Cells:
    """By platform and model alone: several cells of a model are taken together, block by block, store by store."""
    groups = grouped(cells, lambda cell: frozenset(item for item in cell if item[0] in ("platform", model)))
    made = {kept: pooled({cell: cells[cell] for cell in its}) for kept, its in groups.items()}
    return {kept: series for kept, series in made.items() if series is not None}


def compute_rises_for_all_models(evidence: Population) -> Look:
    cells = in_containers(evidence, metrics.COMPUTE, trains)
    model = factor_named(cells, "model")
    if model is None:
        return Look(missing=[no_pair(evidence, metrics.COMPUTE, "training")])
    about = "compute of training, container against bare metal"
    return Look(each(about, by_model(cells, model), "rises", floor=evidence.floor(metrics.COMPUTE)))


def cost_is_negligible(evidence: Population) -> Look:
    """That there is no cost is claimed of each model, trained and used: each must surely lie within the margin."""
    checks: list[Check] = []
    for kind, words in ((trains, "training"), (infers, "inference")):
        cells = in_containers(evidence, metrics.STEP, kind)
        model = factor_named(cells, "model")
        found = by_model(cells, model) if model is not None else cells
        about = f"end-to-end time of {words}, container against bare metal"
        checks += each(about, found, "same", margin=NEGLIGIBLE, floor=evidence.floor(metrics.STEP))
    return Look.of(checks, no_pair(evidence, metrics.STEP))


def gpu_use_falls_and_cpu_use_rises(evidence: Population) -> Look:
    """Of all models but the lightest, whose GPU has little to do on either side: the paper sees nothing there."""
    checks: list[Check] = []
    missing: list[str] = []
    for names, wants in _USES:
        cells = in_containers(evidence, names, trains)
        model = factor_named(cells, "model")
        if len({level(cell, model) for cell in cells}) > 1:
            cells = evidence.heavier(cells, model)
        checks += tendency(f"{WORDS[names]}, container against bare metal", cells, wants)
        missing += [] if cells else [no_pair(evidence, names, "training")]
    return Look(checks, list(dict.fromkeys(missing)))


_USES: tuple[tuple[Names, Wants], ...] = ((metrics.GPU_USE, "falls"), (metrics.CPU_USE, "rises"))


def inference_energy_rises_less(evidence: Population) -> Look:
    if evidence.first(metrics.ENERGY) is None:
        return Look(missing=[evidence.absent(metrics.ENERGY)])
    found = inference_less_training(evidence, metrics.ENERGY) or {}
    made = tendency("rise of energy in a container, inference against training", found, "falls", margin=0.02)
    return Look.of(made, f"{_NOT_BOTH_ON_BOTH}, with its energy")


PHASES = "workload.phases"


def instrumentation_slows_containers(evidence: Population) -> Look:
    """Marks of forward, backward and optimiser step, each with a synchronisation, against marks of the step alone."""
    cells = evidence.cells(metrics.STEP, trains)
    inside = where(against(cells, PHASES, True, False), is_container)
    about = "end-to-end time in a container, phases timed against not timed"
    made = tendency(about, inside, "rises", margin=0.02, floor=evidence.floor(metrics.STEP))
    return Look.of(made, "no container was run with its phases timed and not timed")


def optimiser_grows_most(evidence: Population) -> Look:
    parts = {name: in_containers(evidence, (f"{name}_s",), trains) for name in ("optimiser", "forward", "backward")}
    if not all(parts.values()):
        return Look(missing=["no training in a container and on bare metal has its phases apart (`phases: true`)"])
    checks = conditions(tendency("optimiser step, container against bare metal", parts["optimiser"], "rises"))
    for other in ("forward", "backward"):
        about = f"growth of the optimiser step against that of {other}"
        checks += tendency(about, minus(parts["optimiser"], parts[other]), "rises")
    return Look(checks)


def cost_by_clock(evidence: Population, clocks: Mapping[str, str], wants: Wants) -> Look:
    """The container's cost at the lowest of a clock against the highest."""
    cells = by_clocks(in_containers(evidence, metrics.COMPUTE))
    checks: list[Check] = []
    missing = []
    for name, words in clocks.items():
        found = trend(cells, factor_named(cells, name), falling)
        checks += tendency(f"container cost, from the highest {words} to the lowest", found, wants)
        missing += [] if found else [f"the {words} was not varied with everything else the same"]
    return Look(checks, missing)


def seccomp_off_changes_nothing(evidence: Population) -> Look:
    cells = against(evidence.cells(metrics.STEP), "platform.seccomp", False, True)
    made = each("end-to-end time, without seccomp against with it", cells, "same", floor=evidence.floor(metrics.STEP))
    return Look.of(made, "no container was run both with seccomp and without")


def energy_rise_is_baseload(evidence: Population) -> Look:
    """The baseload's part of the rise in joules against the rest's, both as shares of what bare metal takes."""
    total, base = (evidence.cells(names) for names in (metrics.TOTAL_ENERGY, metrics.BASELOAD))
    if not total or not base:
        return Look(missing=[evidence.absent(metrics.BASELOAD if total else metrics.TOTAL_ENERGY)])
    shares = minus(base, total)
    ratio, share = (evidence.over(cells, is_container) for cells in (total, shares))
    bare = {_rest(cell): series for cell, series in where(shares, is_bare).items()}
    found = {
        cell: joined([series, share[cell], own], _baseload_less_rest)
        for cell, series in ratio.items()
        if cell in share and (own := bare.get(_rest(cell))) is not None
    }
    checks = conditions(tendency("energy, container against bare metal", ratio, "rises", margin=0.02))
    about = "rise of the baseload less the rise of the rest, of bare metal's energy"
    checks += tendency(about, found, "rises", margin=0.01)
    return Look.of(checks, NO_PAIR)


def _baseload_less_rest(log_energy: float, log_share: float, log_bare_share: float) -> float:
    energy, before = math.exp(log_energy), math.exp(log_bare_share)
    baseload = energy * before * math.exp(log_share) - before
    rest = (energy - 1) - baseload
    return math.log(max(1e-9, 1 + baseload - rest))


def _rest(cell: Cell) -> Cell:
    return frozenset(item for item in cell if not item[0].startswith("platform"))


def memory_cost_is_small(evidence: Population) -> Look:
    """More memory in use on the whole device with the container, as a share of what it has, or of the paper's board."""
    name = evidence.first(metrics.MEMORY)
    if name is None:
        return Look(missing=[evidence.absent(metrics.MEMORY)])

    def one_and_share(record: Record) -> float | None:
        whole, used = (record.facts.get("device") or {}).get("memory_bytes"), record.metrics.get(name)
        if used is None or not isinstance(whole, int | float) or whole <= 0:
            return None
        return 1 + used / min(whole, BOARD_BYTES)

    cells = evidence.figured(one_and_share)
    if not cells:
        return Look(missing=["the records do not contain the memory size of the device"])
    # (1 + container's share) / (1 + bare's): within a small share of a small share of their difference.
    found = evidence.over(cells, is_container)
    about = "memory that the container adds, of the device's (of 32 GB at most, the paper's board)"
    return Look.of(tendency(about, found, "falls", bound=SMALL_MEMORY), NO_PAIR)


CLAIMS = (
    Claim("s0.compute-rises-for-all-models", "V-A1", "compute rises in a container for all models (training)",
          "s0-container-tax", compute_rises_for_all_models),
    Claim("s0.container-cost-is-negligible", "the authors' v2 (arXiv 2312.07220v2)",
          "the cost of a container is negligible: within 5 % for each model, trained and used for inference",
          "s0-container-tax", cost_is_negligible),
    Claim("s0.lighter-models-lose-more", "V-A1", "lighter models lose more in a container (training)",
          "s0-container-tax", lighter_models_lose_more),
    Claim("s0.gpu-use-falls-and-cpu-use-rises", "V-A2",
          "in a container the GPU is used less and the CPU more", "s0-container-tax", gpu_use_falls_and_cpu_use_rises),
    Claim("s0.inference-loses-less", "V-B1", "inference loses less in a container than training",
          "s0-container-tax", inference_loses_less),
    Claim("s0.optimiser-step-grows-most", "V-A4", "of forward, backward and optimiser step, the last grows most",
          "s0-phase-breakup", optimiser_grows_most),
    Claim("s0.lower-cpu-clock-makes-it-worse", "V-A3", "a lower CPU clock makes the container's cost worse",
          "s0-power-sensitivity", partial(cost_by_clock, clocks={"cpu_mhz": "CPU clock"}, wants="rises"), scale="full"),
    Claim("s0.gpu-and-memory-clocks-do-not", "V-A3", "GPU and memory clocks do not change the container's cost",
          "s0-power-sensitivity",
          partial(cost_by_clock, clocks={"gpu_mhz": "GPU clock", "mem_mhz": "memory clock"}, wants="same")),
    Claim("s0.more-system-calls", "V-A4", "a container makes more system calls", "s0-syscalls",
          partial(container_figure, names=metrics.SYSTEM_CALLS, wants="rises")),
    Claim("s0.seccomp-off-changes-nothing", "V-A4", "seccomp off changes nothing", "s0-seccomp",
          seccomp_off_changes_nothing),
    Claim("s0.total-energy-rises", "V-A5", "total energy rises in a container", "s0-container-tax",
          partial(container_figure, names=metrics.ENERGY, wants="rises", margin=0.02)),
    Claim("s0.inference-energy-rises-less", "V-B2", "energy rises less in a container for inference than for training",
          "s0-container-tax", inference_energy_rises_less),
    Claim("s0.instrumentation-slows-containers", "V-A4",
          "timing forward, backward and optimiser step makes training in a container slower", "s0-instrumentation",
          instrumentation_slows_containers),
    Claim("s0.energy-rise-is-baseload", "V-A6", "what energy rises by is mostly baseload", "s0-container-tax",
          energy_rise_is_baseload),
    Claim("s0.memory-cost-is-small", "V-A7", "a container costs little memory", "s0-container-tax",
          memory_cost_is_small),
)  # fmt: skip
