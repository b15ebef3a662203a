"""S4: bare metal, VM, micro-VM, container and container in VM, over cores, pinning, CPU and GPU, end to end."""

from __future__ import annotations

import math
from statistics import median

from tare.ext.analysis import PLACEMENT, Record, is_board
from tare.papers.claims import metrics
from tare.papers.claims.checks import by_speed, conditions, excused, tendencies, tendency
from tare.papers.claims.deciding import words_of
from tare.papers.claims.metrics import (
    CONTAINERS,
    Cell,
    is_bare,
    is_container,
    is_container_in_machine,
    is_machine,
    is_micro_machine,
    is_virtual,
    level,
    medium_factor,
    on,
)
from tare.papers.claims.model import (
    HOLDS,
    Cells,
    Check,
    Claim,
    Look,
    Population,
    Wants,
    against,
    at,
    by_level,
    by_level_of_store,
    gathered,
    levels,
    minus,
    rising,
    split,
    trend,
    where,
    without,
)

CORES, PIN, DEVICE = "platform.cores", "platform.pin", "workload.device"
_CORES_OF_THE_HOST = ("control.power_mode.cores", "control.power_mode.mode")
FEW = 0.2  # of the host's cores: the paper's outliers have less than 16 of 80
OVER_CPU = 3  # times as fast
NO_GAIN = 0.05  # less than this is no improvement
NOTHING_TO_LOWER = "unpinned, it takes no longer than bare metal for sure, and pinning has nothing to lower"
_NO_FEW = "no unpinned container was run on several numbers of cores, each beside bare metal on as many"
_NOT_PINNED = "no application was run both pinned and vanilla, on a virtual platform and on bare metal"
STILL_FASTER = "it is still faster with the most cores that were run, and may stop beyond them"


def stops_improving(evidence: Population) -> Look:
    """Cores help at first, and the last step up brings less than a twentieth."""
    cells = evidence.cells(metrics.END_TO_END)
    first, last = _ladder(cells, 0, -2), _ladder(cells, -2, -1)
    if not last:
        return Look(missing=["it takes three numbers of cores or more with everything else the same"])
    checks = conditions(tendency("end-to-end time, next to most cores against fewest", first, "falls"))
    made = tendency("end-to-end time, most cores against next to most", last, "rises", bound=-NO_GAIN)
    return Look(checks + excused(made, STILL_FASTER))


def _ladder(cells: Cells, lower: int, upper: int) -> Cells:
    """One place on the ladder of core counts, less another; where there are three steps or more."""
    made = []
    for rest, found in by_level_of_store(cells, CORES):
        numbers = sorted(value for value in found if rising(value) is not None)
        if len(numbers) >= 3:
            made.append((rest, found[numbers[upper]].minus(found[numbers[lower]])))
    return gathered(made)


def vanilla_with_few_cores_is_an_outlier(evidence: Population) -> Look:
    """The cost of an unpinned container on the fewest cores, and how it falls with more of the host's cores."""
    cells = evidence.over(evidence.cells(metrics.END_TO_END), lambda cell: is_container(cell) and not level(cell, PIN))
    falls = trend(cells, CORES, rising)
    fewest = {
        rest: found[min(numbers)]
        for rest, found in by_level(cells, CORES).items()
        if len(numbers := [number for value in found if (number := rising(value)) is not None]) > 1
    }
    if not falls:
        return Look(missing=[_NO_FEW])
    shares = [cores[0] / cores[1] for cell in cells if (cores := _cores(evidence, cell)) is not None]
    if shares and min(shares) > FEW:
        return Look(missing=[f"the fewest cores were {min(shares):.0%} of the host's: it takes {FEW:.0%} or less"])
    checks = tendency("vanilla container against bare metal, on the fewest cores", fewest, "rises")
    return Look(checks + tendency("its cost, from the fewest cores to the most", falls, "falls"))


def pinning_lowers_overhead(evidence: Population) -> Look:
    """Of what a platform takes over bare metal that is placed alike: pinning may make bare metal faster as well."""
    over = evidence.over(evidence.cells(metrics.END_TO_END), is_virtual, ways=(PLACEMENT,))
    lowered, vanilla = against(over, PIN, True, False), at(over, PIN, False)
    if not lowered:
        return Look(missing=[_NOT_PINNED])

    def costs(rest: Cell) -> bool:
        unpinned = where(vanilla, lambda cell: without(cell, PIN) == rest)
        return HOLDS in words_of(tendency("", unpinned, "rises"), evidence.alpha)

    dear = where(lowered, costs)
    made = tendency("time over bare metal's, pinned against vanilla", dear or lowered, "falls")
    return Look(made, depends_on="" if dear else NOTHING_TO_LOWER)


def bare_without_idle_core(evidence: Population) -> Look:
    """Bare metal whose every core is in use against a virtual platform of as many cores, whose host has more."""
    cells = evidence.cells(metrics.END_TO_END)
    placed = {cell: cores for cell in cells if (cores := _cores(evidence, cell)) is not None}
    full = {_on_as_many(cell, used): cell for cell, (used, there) in placed.items() if is_bare(cell) and used >= there}
    faster = {
        cell: ratio
        for cell, (used, there) in placed.items()
        if is_virtual(cell) and used < there and (like := full.get(_on_as_many(cell, used))) is not None
        if (ratio := evidence.ratio(cells, cell, like)).values
    }
    about = "end-to-end time, {} on a host with cores to spare against bare metal with none"
    return Look.of(tendencies(about, split(faster, "platform"), "falls"), _NO_SPARE)


def machines_slower_without_idle_core(evidence: Population) -> Look:
    """Every core of the host in use on both sides: a VM, and a container in one, against bare metal."""
    cells = evidence.cells(metrics.END_TO_END)
    full = {cell for cell in cells if (cores := _cores(evidence, cell)) is not None and cores[0] >= cores[1]}
    kept = where(cells, lambda cell: cell in full)
    kinds = {"VM": is_machine, "container in a VM": is_container_in_machine}
    slower = {words: evidence.over(kept, is_ours) for words, is_ours in kinds.items()}
    checks = tendencies("end-to-end time without an idle core, {} against bare metal", slower, "rises")
    return Look.of(checks, "no virtual machine that has all of the host's cores was run beside bare metal")


def several_sockets_are_slower(evidence: Population) -> Look:
    """The fewest cores that do not fit into a socket against the most that do."""
    cells = evidence.cells(metrics.END_TO_END)
    sizes = {size for trial in evidence.trials if (size := _socket(trial)) is not None}
    if len(sizes) != 1:
        return Look(missing=["the records do not say how many cores a socket has"])
    (size,) = sizes
    made = []
    for rest, found in by_level_of_store(cells, CORES):
        numbers = {value: number for value in found if (number := rising(value)) is not None}
        inside = [value for value, number in numbers.items() if number <= size]
        beyond = [value for value, number in numbers.items() if number > size]
        if inside and beyond:
            last, first = (pick(side, key=lambda v: numbers[v]) for pick, side in ((max, inside), (min, beyond)))
            made.append((rest, found[first].minus(found[last])))
    about = f"end-to-end time, more cores than the {size} of a socket against no more"
    checks = tendency(about, gathered(made), "rises")
    return Look.of(checks, f"no application was run both on more cores than a socket has ({size}) and on fewer")


def _socket(record: Record) -> int | None:
    """The cores of a socket, of `0-39` or `0,2,4`; the device's own words for which lie beside the first."""
    told = str((record.facts.get("device") or {}).get("cpu.socket") or "")
    spans = [part.partition("-") for part in told.split(",") if part]
    if not spans or not all(low.isdigit() and (not dash or high.isdigit()) for low, dash, high in spans):
        return None
    return sum(int(high or low) - int(low) + 1 for low, _, high in spans)


def gpu_time_rises_with_cores(evidence: Population) -> Look:
    """Of images, whose pre- and post-processing decide on a GPU."""
    cells = evidence.cells(metrics.END_TO_END, lambda record: _is_application(record) and _named(record) == "image")
    found = trend(where(cells, lambda cell: level(cell, DEVICE) == "cuda"), CORES, rising)
    made = tendency("image classification on the GPU, end to end, from the fewest cores to the most", found, "rises")
    return Look.of(made, "image classification was not run on a GPU with several numbers of cores")


def questions_gain_on_every_platform(evidence: Population) -> Look:
    cells = evidence.cells(metrics.END_TO_END, lambda record: _is_application(record) and _named(record) == "question")
    gains = split(against(cells, DEVICE, "cuda", "cpu"), "platform")
    checks = tendencies("question answering, end to end, GPU against CPU, {}", gains, "falls", bound=1 / OVER_CPU - 1)
    return Look.of(checks, _NO_GPU)


def others_dominate_on_gpu(evidence: Population) -> Look:
    """What is not inference, as a share of a request: on a GPU against on the CPU."""
    name = evidence.first(metrics.INFERENCE, _is_application)

    def rest(record: Record) -> float | None:
        step_s = next((record.compared[each] for each in metrics.END_TO_END if each in record.compared), None)
        inference_s = record.compared.get(name or "")
        return None if step_s is None or inference_s is None else max(1e-6, 1 - inference_s / step_s)

    found = against(evidence.figured(rest, _is_application), DEVICE, "cuda", "cpu")
    return Look.of(tendency("share of a request that is not inference, GPU against CPU", found, "rises"), _NO_GPU)


def storage_parts_platforms_by_input(evidence: Population) -> Look:
    """On the slowest medium, VM against container: images read in large pieces, questions in many small ones."""
    cells = evidence.cells(metrics.END_TO_END, _is_application)
    medium = medium_factor(cells)
    if medium is None:
        return Look(missing=["no application was run from a storage medium on several platforms"])
    slow = at(cells, medium, by_speed(cells, medium)[0])
    checks: list[Check] = []
    missing = []
    for name, wants in _INPUTS:
        mine = at(slow, "workload.name", name)
        found = evidence.over(mine, lambda cell: is_machine(cell) or is_container_in_machine(cell), is_container)
        checks += tendency(f"{name}, end to end from the slowest medium, VM against container", found, wants)
        missing += [] if found else [f"{name} was not run from a storage medium in a VM and in a container"]
    return Look(checks, missing)


_INPUTS: tuple[tuple[str, Wants], ...] = (("image", "same"), ("question", "rises"))


def _named(record: Record) -> str:
    return str(record.settings.get("workload.name"))


def _cores(evidence: Population, cell: Cell) -> tuple[float, float] | None:
    """The cores that it may use, and those of its host; None where nothing says, or its threads do not fill them."""
    places = {
        (place.get("usable_cores"), place.get("host_cores"))
        for record in evidence.by_cell[cell]
        for place in [record.facts.get("place") or {}]
    }
    used, there = places.pop() if len(places) == 1 else (None, None)
    if used is None or there is None:
        return None
    threads = level(cell, "workload.threads")
    return None if isinstance(threads, int | float) and threads < used else (float(used), float(there))


def _on_as_many(cell: Cell, cores: float) -> tuple[Cell, float]:
    """What else must be the same: bare metal has as few cores as that because the others are switched off."""
    names = [name for name, _ in cell if name in _CORES_OF_THE_HOST or name.partition(".")[0] == "platform"]
    return without(cell, *names), cores


def gpu_only_where_inference_dominates(evidence: Population) -> Look:
    steps, inference = (evidence.cells(names, _is_application) for names in (metrics.END_TO_END, metrics.INFERENCE))
    gains = against(steps, DEVICE, "cuda", "cpu")
    shares = where(minus(inference, steps), lambda cell: level(cell, DEVICE) == "cpu")
    mostly = {without(cell, DEVICE) for cell, share in shares.items() if median(share.values.values()) > math.log(0.5)}
    if not gains:
        return Look(missing=[_NO_GPU])
    dominated = where(gains, lambda cell: cell in mostly)
    others = where(gains, lambda cell: cell not in mostly)
    about = "end-to-end time, GPU against CPU, where inference"
    checks = tendency(f"{about} dominates", dominated, "falls")
    checks += tendency(f"{about} does not dominate", others, "rises", bound=-NO_GAIN)
    missing = [] if dominated else ["an application whose inference is over half of its time"]
    missing += [] if others else ["an application whose inference is under half of its time"]
    return Look(checks, missing)


def inference_only_overstates(evidence: Population) -> Look:
    """Of applications alone: of a network on data in memory inference is all there is."""
    whole, alone = (
        against(evidence.cells(names, _is_application), DEVICE, "cuda", "cpu")
        for names in (metrics.END_TO_END, metrics.INFERENCE)
    )
    made = tendency("speed-up of inference alone against that end to end", minus(whole, alone), "rises")
    return Look.of(made, _NO_GPU)


def _is_application(record: Record) -> bool:
    return record.settings.get("workload") == "application"


def micro_vm_is_not_faster(evidence: Population) -> Look:
    found = evidence.over(evidence.cells(metrics.END_TO_END), is_micro_machine, is_machine)
    made = tendency("end-to-end time, micro-VM against VM", found, "rises", bound=-NO_GAIN)
    return Look.of(made, "no application was run in a micro-VM beside a VM")


def container_in_vm_costs_most(evidence: Population) -> Look:
    cells = evidence.cells(metrics.END_TO_END)
    singles = [str(name) for name in levels(cells, "platform") if "+" not in str(name)]
    dearer = {name: evidence.over(cells, is_container_in_machine, on(name)) for name in singles}
    checks = tendencies("end-to-end time, container in VM against {}", dearer, "rises")
    if not checks:
        return Look(missing=["no application was run in a container in a VM beside another platform"])
    missing = [] if any(map(is_container, cells)) else ["a container on the host"]
    missing += [] if any(map(is_machine, cells)) else ["a VM without a container"]
    return Look(checks, missing)


def container_costs_least_on_the_edge(evidence: Population) -> Look:
    boards = {str((trial.facts.get("device") or {}).get("board") or "") for trial in evidence.trials}
    if not boards or not all(map(is_board, boards)):
        return Look(missing=[NO_BOARD])
    cells = evidence.cells(metrics.END_TO_END)
    others = [str(name) for name in levels(cells, "platform") if name != "bare" and name not in CONTAINERS]
    cheaper = {name: evidence.over(cells, is_container, on(name)) for name in others}
    checks = tendencies("end-to-end time, container against {}", cheaper, "falls")
    return Look.of(checks, "no application was run in a container beside another virtual platform on this board")


NO_BOARD = "it takes an edge board: this device does not report that it is one"
_NO_GPU = "no application was run both on the CPU and on the GPU"
_NO_SPARE = (
    "no virtual platform on a host with cores to spare was run beside bare metal with as many cores and no spare ones: "
    "on one host it takes bare metal with the other cores switched off (`power_mode: {cores: N}`)"
)

CLAIMS = (
    Claim("s4.e2e-stops-improving", "IV-A1, V-F", "end-to-end time stops improving beyond some core count",
          "s4-scale-up", stops_improving, scale="full"),
    Claim("s4.vanilla-container-with-few-cores-is-an-outlier", "V-A",
          "a vanilla container with few of the host's cores is an outlier", "s4-pinning",
          vanilla_with_few_cores_is_an_outlier, scale="full"),
    Claim("s4.pinning-lowers-the-overhead", "V-C", "pinning lowers the overhead", "s4-pinning",
          pinning_lowers_overhead),
    Claim("s4.bare-without-idle-core-can-be-slower", "V-B",
          "bare metal with no idle core can be slower than a virtual platform on a host with cores to spare",
          "s4-idle-core", bare_without_idle_core, any_of=True, scale="small"),
    Claim("s4.machines-are-slower-without-an-idle-core", "V-B, Fig. 9",
          "with no idle core on the host a VM and a container in one are slower than bare metal", "s4-idle-core",
          machines_slower_without_idle_core, scale="full"),
    Claim("s4.more-than-one-socket-is-slower", "V-F", "more cores than a socket has are slower", "s4-scale-up",
          several_sockets_are_slower, scale="full"),
    Claim("s4.storage-parts-platforms-by-input", "V-E",
          "on a hard disk VMs fall behind containers for many small reads, and not for images", "s4-storage",
          storage_parts_platforms_by_input, scale="full"),
    Claim("s4.gpu-time-rises-with-cores", "IV-A1", "on a GPU image classification takes longer with more cores",
          "s4-gpu", gpu_time_rises_with_cores, scale="full"),
    Claim("s4.questions-gain-over-3x-on-a-gpu", "IV-C",
          "a GPU answers questions more than three times as fast end to end, on every platform", "s4-gpu",
          questions_gain_on_every_platform, scale="full"),
    Claim("s4.pre-and-post-processing-become-the-bottleneck", "V-D",
          "with a GPU pre- and post-processing become the bottleneck", "s4-gpu", others_dominate_on_gpu),
    Claim("s4.gpu-helps-only-where-inference-dominates", "IV-A2, IV-C",
          "the GPU helps end to end only where inference dominates", "s4-gpu", gpu_only_where_inference_dominates),
    Claim("s4.inference-only-overstates", "IV-A2", "the speed-up of inference alone overstates that end to end",
          "s4-gpu", inference_only_overstates),
    Claim("s4.micro-vm-is-not-faster", "V-G", "a micro-VM is not faster than a VM where I/O matters", "s4-microvm",
          micro_vm_is_not_faster, scale="full"),
    Claim("s4.container-in-vm-costs-most", "IV, V-H", "a container in a VM costs most", "s4-platforms",
          container_in_vm_costs_most, scale="full"),
    Claim("s4.container-costs-least-on-the-edge", "V-H", "on the edge the container costs least", "s4-platforms",
          container_costs_least_on_the_edge, scale="edge"),
)  # fmt: skip
