"""S3: training on Jetson boards: batch size, variability, DVFS, power modes and their prediction.

What S3 says of workers, media and the page cache is in `s1`, which says the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from tare.ext.analysis import ASLEEP, Measurement, Record, TrialRow, grouped, kind_of_device, title_of
from tare.papers.claims import metrics
from tare.papers.claims.checks import (
    by_clocks,
    by_mode,
    close_share,
    conditions,
    default_mode,
    each,
    errors,
    excused,
    grid,
    labels,
    slowest_to_fastest,
    tendencies,
    tendency,
)
from tare.papers.claims.metrics import (
    LATER_EPOCHS,
    Cell,
    Names,
    Value,
    factor_named,
    is_bare,
    level,
    medium_factor,
    trains,
)
from tare.papers.claims.model import (
    Cells,
    Check,
    Claim,
    Look,
    Population,
    Series,
    Wants,
    against,
    at,
    by_level,
    each_model,
    ends,
    joined,
    largest_levels,
    last_doubling,
    levels,
    minus,
    pooled,
    rising,
    software,
    trend,
    where,
)
from tare.papers.claims.s0 import by_model

BATCH = "workload.batch"
SATURATED = 0.1  # a doubling of the batch that saves less than this an item: the gain has run out
LITTLE = 0.05  # between epochs: the paper's worst is 5 %
LITTLE_BETWEEN_DEVICES = 0.08  # the paper's worst is 7.8 %
PREDICTED = 0.15  # mean absolute error of time: the paper has 12 %, and 15 % for all but three modes
LITTLE_ENERGY = 0.09  # the paper's worst is 8.81 %
MODEST = 0.15  # the paper has 6 and 12 % for the heavier models
FEWEST_SPREAD = 3
WORKERS, DATA, LOGGING = "workload.workers", "workload.data", "workload.logging"
# About what an item takes on disk, for the order of data sets by what a mini-batch reads.
ITEM_BYTES = {"mnist": 800, "cifar10": 3_100, "imagenet": 110_000, "gld23k": 122_000}
CLOSE, MOST_CLOSE = 0.1, 0.7  # 31 of 40 predictions, so 78 %
NO_BATCHES = "the batch size was not varied with everything else the same"
NOT_SATURATED = "the largest batch did not saturate the GPU"
ONE_SOFTWARE = "only one set of software was measured on a type of device"


def per_item(evidence: Population, names: Names) -> Cells:
    """A figure of a mini-batch, for one of its items."""
    name = evidence.first(names, trains)

    def figure(record: Record) -> float | None:
        value, batch = record.compared.get(name or ""), record.settings.get(BATCH)
        return value / batch if value is not None and isinstance(batch, int | float) and batch > 0 else None

    return evidence.figured(figure, trains)


def larger_batches_until_saturation(evidence: Population) -> Look:
    cells = per_item(evidence, metrics.MEAN_STEP)
    if not ends(cells, BATCH, rising):
        return Look(missing=[NO_BATCHES])
    on_gpu = where(cells, lambda cell: level(cell, "workload.device") not in (None, "cpu"))
    whole, last = ends(on_gpu, BATCH, rising), last_doubling(on_gpu, BATCH)
    if not whole:
        return Look(missing=["no trial ran on a GPU, which is what saturates"])
    floor = evidence.floor(metrics.MEAN_STEP)
    checks = tendency("time per item (and so per epoch), largest batch against smallest", whole, "falls", floor=floor)
    by_batch = each_model(on_gpu)
    for model, mine in each_model(last).items():
        batches = " or ".join(largest_levels(by_batch.get(model, on_gpu), BATCH))
        about = f"time per item, for each doubling of the batch from {batches}{model}"
        made = tendency(about, mine, "rises", bound=-SATURATED)
        # A gain that has not run out yet does not speak against its running out.
        checks += excused(made, NOT_SATURATED)
    return Look(checks, [] if last else ["it takes three batch sizes or more"])


def stall_by_batch(evidence: Population) -> Look:
    a_batch = trend(evidence.cells(metrics.STALL, trains), BATCH, rising)
    an_item = trend(per_item(evidence, metrics.STALL), BATCH, rising)
    if not a_batch:
        return Look(missing=[NO_BATCHES if evidence.first(metrics.STALL) else evidence.absent(metrics.STALL)])
    checks = tendency("stall per mini-batch, from the smallest batch to the largest", a_batch, "rises")
    checks += tendency("stall per item (and so per epoch), from the smallest batch to the largest", an_item, "falls")
    return Look(checks)


def epochs_vary_little(evidence: Population) -> Look:
    """The epoch farthest from the mean of its trial, epoch 0 apart, model by model."""

    def one_and_farthest(trial: TrialRow) -> float | None:
        later = trial.epochs[1:]
        enough = len(later) >= LATER_EPOCHS
        return 1 + max(abs(value / fmean(later) - 1) for value in later) if enough else None

    about = "farthest epoch of a trial from its mean, epoch 0 apart{}"
    models = each_model(evidence.figured(one_and_farthest))
    return Look.of(tendencies(about, models, "falls", bound=LITTLE), "no trial has ten epochs after the first")


def gain_of_pipelining_depends_on_model(evidence: Population) -> Look:
    """What workers save end to end, of the model that waits most without them against the one that waits least."""
    steps, stalls = evidence.cells(metrics.MEAN_STEP, trains), evidence.cells(metrics.STALL, trains)
    gains = {
        rest: found[max(most)].minus(found[0])
        for rest, found in by_level(steps, WORKERS).items()
        if 0 in found and (most := [number for value in found if (number := rising(value) or 0.0) > 0])
    }
    model = factor_named(gains, "model")
    waits = {rest: share for rest in gains if (share := _waiting(rest, steps, stalls)) is not None}
    if model is None or len({level(cell, model) for cell in waits}) < 2:
        return Look(missing=["it takes two models or more, each without workers and with some"])
    by_share = {
        name: fmean(waits[cell] for cell in its) for name, its in grouped(waits, lambda c: level(c, model)).items()
    }
    longest, shortest = (pick(by_share, key=lambda name: by_share[name]) for pick in (max, min))
    apart = _mean_less(at(gains, model, longest), at(gains, model, shortest))
    if not apart or longest is None or shortest is None:
        return Look(missing=["the models share no block"])
    one, other = (title_of("models", str(name)) for name in (longest, shortest))
    about = f"end-to-end time, workers against none, {one} (waits most) against {other} (waits least)"
    return Look(tendency(about, apart, "falls"))


def _mean_less(ours: Cells, theirs: Cells) -> Cells:
    """The mean over these cells less that over those, as one cell; nothing where they share no block."""
    sides = [pooled(side) for side in (ours, theirs)]
    apart = None if sides[0] is None or sides[1] is None else sides[0].minus(sides[1])
    return {frozenset(): apart} if apart is not None and apart.values else {}


def _waiting(rest: Cell, steps: Cells, stalls: Cells) -> float | None:
    """The share of the step that the stall has without workers."""
    plain = rest | {(WORKERS, 0)}
    if plain not in steps or plain not in stalls or not (share := stalls[plain].minus(steps[plain])).values:
        return None
    return math.exp(fmean(share.values.values()))


def medium_matters_by_pressure(evidence: Population) -> Look:
    """Epoch 0 without workers, slowest medium against fastest: of data with large items, and with small ones."""

    def unhidden(record: Record) -> bool:
        return trains(record) and not record.settings.get(WORKERS)

    cells = evidence.cells(metrics.EPOCH0_STEP, unhidden)
    medium = medium_factor(cells)
    if len(levels(cells, medium)) < 2:
        return Look(missing=["only one storage medium was measured in epoch 0 without workers"])
    by_size: dict[int, dict[Cell, Series]] = {}
    for cell, slower in slowest_to_fastest(cells, medium).items():
        if (size := ITEM_BYTES.get(str(level(cell, DATA)))) is not None:
            by_size.setdefault(size, {})[cell] = slower
    if len(by_size) < 2:
        return Look(missing=["it takes two data sets, of large and of small items, on two media"])
    heavy, light = by_size[max(by_size)], by_size[min(by_size)]
    checks = conditions(tendency("epoch 0, slowest medium against fastest, largest items", heavy, "rises"))
    about = "loss by the slowest medium in epoch 0, largest items against smallest"
    return Look(checks + tendency(about, _mean_less(heavy, light), "rises"))


def energy_varies_little(evidence: Population) -> Look:
    """The epoch of a run whose energy is farthest from the mean of its later epochs."""

    def one_and_farthest(record: Record) -> float | None:
        far = record.compared.get(metrics.EPOCH_ENERGY[0])
        return None if far is None else 1 + far

    about = "energy of the farthest epoch of a trial from the mean, epoch 0 apart{}"
    models = each_model(evidence.figured(one_and_farthest, trains))
    return Look.of(tendencies(about, models, "falls", bound=LITTLE_ENERGY), evidence.absent(metrics.EPOCH_ENERGY))


def idle_power_by_state(evidence: Population) -> Look:
    """Idle power with DVFS on against off, and of a device that logs against one that does not."""
    cells = Population(evidence.idle).cells(metrics.POWER, lambda each: ASLEEP not in each.settings.items())
    if not cells:
        return Look(missing=["no idle device was measured with its power (`workload: idle`)"])
    saved, logged = _dvfs_on(cells), against(cells, LOGGING, True, False)
    checks = tendency("idle power, DVFS on against off", saved, "falls")
    checks += tendency("idle power, logging against not", logged, "same", margin=0.1)
    missing = [] if saved else ["DVFS was not switched on the idle device"]
    missing += [] if logged else ["no idle device was run with logging and without (`logging: [true, false]`)"]
    return Look(checks, missing)


def _dvfs_on(cells: Cells) -> Cells:
    """DVFS on against off."""

    def order(value: Value) -> float:
        return 1.0 if str(value).lower() in ("on", "true", "1") else 0.0

    return ends(
        cells, next((name for cell in cells for name, _ in cell if name.startswith("control.dvfs")), None), order
    )


def low_gpu_clock_costs_energy(evidence: Population) -> Look:
    """The highest GPU clock against the lowest: faster, more power, less energy."""
    checks: list[Check] = []
    missing = []
    for names, wants in _AT_MAXN:
        cells = by_clocks(where(evidence.cells(names, trains), is_bare))
        found = ends(cells, factor_named(cells, "gpu_mhz"), rising)
        checks += tendency(f"{metrics.WORDS[names]}, highest GPU clock against lowest", found, wants)
        missing += [] if found else [evidence.absent(names) if not cells else "the GPU clock was not varied alone"]
    return Look(checks, list(dict.fromkeys(missing)))


_AT_MAXN: tuple[tuple[Names, Wants], ...] = (
    (metrics.END_TO_END, "falls"), (metrics.POWER, "rises"), (metrics.ENERGY, "falls"),
)  # fmt: skip


def energy_by_mode_is_modest(evidence: Population) -> Look:
    """The dearest mode against the cheapest, of all below the highest GPU clock, for each model but the lightest."""
    if evidence.first(metrics.ENERGY) is None:
        return Look(missing=[evidence.absent(metrics.ENERGY)])
    cells = where(evidence.cells(metrics.ENERGY, trains), is_bare)
    clock, model = factor_named(cells, "gpu_mhz"), factor_named(cells, "model")
    highest = max((number for value in levels(cells, clock) if (number := rising(value))), default=None)
    lower = where(cells, lambda cell: clock is None or level(cell, clock) != highest)
    spread: dict[Cell, Series] = {}
    for rest, modes in by_mode(lower).items():
        if len(modes) >= FEWEST_SPREAD:
            dearest, cheapest = (
                pick(modes.values(), key=lambda series: median(series.values.values())) for pick in (max, min)
            )
            spread[rest] = dearest.minus(cheapest)
    if not spread or model is None:
        return Look(missing=[f"it takes {FEWEST_SPREAD} power modes or more below the highest GPU clock, with energy"])
    about, heavy = "energy, dearest power mode against cheapest, of heavier models", evidence.heavier(spread, model)
    return Look.of(tendency(about, heavy, "falls", bound=MODEST), "energy of only one model by power mode")


def devices_vary_little(evidence: Population) -> Look:
    checks: list[Check] = []
    for kind, trials in _by_kind(evidence).items():
        same = max(_by_software(trials).values(), key=len)
        devices = grouped(same, lambda trial: str(trial.device))
        (first, theirs), *others = devices.items()
        for name, ours in others:
            about = f"end-to-end time, {name} against {first} ({kind[0]})"
            checks += _two_samples(about, evidence, ours, theirs, "same", LITTLE_BETWEEN_DEVICES)
    return Look.of(checks, "only one device of a type was measured")


def software_varies_a_lot(evidence: Population) -> Look:
    checks: list[Check] = []
    for kind, trials in _by_kind(evidence).items():
        versions = list(_by_software(trials).values())
        for number, ours in enumerate(versions[1:], start=2):
            about = f"end-to-end time, software {number} against software 1 ({kind[0]})"
            checks += _two_samples(about, evidence, ours, versions[0], "apart", LITTLE)
    return Look.of(checks, ONE_SOFTWARE)


def _by_kind(evidence: Population) -> dict[tuple[str, ...], list[TrialRow]]:
    return {kind: trials for kind, trials in grouped(evidence.trials, kind_of_device).items() if kind}


def _by_software(trials: Sequence[TrialRow]) -> dict[tuple[tuple[str, str], ...], list[TrialRow]]:
    """Trials by platform's software: what a container's image has is compared with images alone."""
    return grouped(trials, lambda trial: tuple(sorted(software(trial).items())))


def _two_samples(
    about: str, evidence: Population, ours: Sequence[TrialRow], theirs: Sequence[TrialRow], wants: Wants, margin: float
) -> list[Check]:
    """End-to-end time of one group against another that shares no block with it, cell by cell.

    Over all cells together, two opposite changes would be none.
    """
    name = evidence.first(metrics.STEP)
    measured = [[trial for trial in side if trial.compared.get(name or "", 0.0) > 0] for side in (ours, theirs)]
    sides = [
        {
            cell: {f"{trial.block_id} {trial.trial}": trial.compared[name or ""] for trial in trials}
            for cell, trials in grouped(side, evidence.cell).items()
        }
        for side in measured
    ]
    both = [cell for cell in sides[0] if cell in sides[1]]
    made = []
    for cell, label in zip(both, labels(both), strict=True):
        words = f"{about}, {label}" if label else about
        ours_here, theirs_here = (tuple(Measurement(words, value) for value in side[cell].values()) for side in sides)
        used = frozenset(trial for side in sides for trial in side[cell])
        made.append(Check(words, wants, ours_here, theirs_here, margin, trials=used))
    return made


def dvfs_changes_nothing(evidence: Population) -> Look:
    checks: list[Check] = []
    missing = []
    for names, wants in ((metrics.STEP, "same"), (metrics.ENERGY, "same"), (metrics.CLOCK, "apart")):
        cells = evidence.cells(names)
        found, about = _dvfs_on(cells), f"{metrics.WORDS[names]}, DVFS on against off"
        if wants == "apart":
            checks += conditions(tendency(about, found, "apart"))
        else:
            checks += each(about, found, "same", floor=evidence.floor(names))
        switched = "DVFS was not switched with everything else the same"
        missing += [] if found else [switched if cells else evidence.absent(names)]
    return Look(checks, list(dict.fromkeys(missing)))


def default_may_not_be_pareto(evidence: Population) -> Look:
    """For every other mode: by how much the default is worse in both time and energy, by the lesser of the two."""
    time, energy = (by_mode(evidence.cells(names)) for names in (metrics.END_TO_END, metrics.ENERGY))
    if evidence.first(metrics.ENERGY) is None:
        return Look(missing=[evidence.absent(metrics.ENERGY)])
    if len({mode for found in energy.values() for mode in found}) < 2:
        return Look(missing=["no power mode was varied"])
    default = default_mode(evidence, list(dict.fromkeys(mode for found in time.values() for mode in found)))
    if default is None:
        return Look(missing=["the study does not say which power mode is the default (`compare: {against: ...}`)"])
    worse: dict[Cell, Series] = {}
    for rest, modes in time.items():
        joules = energy.get(rest, {})
        for mode in modes if default in modes and default in joules else ():
            if mode != default and mode in joules:
                pair = [modes[default].minus(modes[mode]), joules[default].minus(joules[mode])]
                if (lesser := joined(pair, min)).values:
                    worse[rest | mode] = lesser
    checks = each("default mode, time and energy both above those of", worse, "rises", margin=0.01)
    return Look.of(checks, "no other power mode was measured beside the default")


def baseload_dominates_light_models(evidence: Population) -> Look:
    total, base = evidence.cells(metrics.TOTAL_ENERGY, trains), evidence.cells(metrics.BASELOAD, trains)
    if not total or not base:
        return Look(missing=[evidence.absent(metrics.BASELOAD if total else metrics.TOTAL_ENERGY)])
    shares = minus(base, total)
    model = factor_named(shares, "model")
    if len({level(cell, model) for cell in shares}) < 2:
        return Look(missing=["baseload of only one model"])
    lightest, about = evidence.lightest(shares, model), "baseload's share of the energy"
    light = at(shares, model, lightest)
    checks = tendency(f"{about}, {title_of('models', str(lightest))}", light, "rises", bound=0.5 - 1, kind="share")
    falls = trend(by_model(shares, model), model, evidence.model_order.get)
    return Look(checks + tendency(f"{about}, from the lightest model to the heaviest", falls, "falls"))


def heavier_gain_more_from_gpu(evidence: Population) -> Look:
    found = _clocked(evidence, metrics.COMPUTE, "gpu_mhz")
    model = factor_named(found, "model")
    by_weight = trend(by_model(found, model), model, evidence.model_order.get)
    made = tendency("compute from lowest to highest GPU clock, from lightest model to heaviest", by_weight, "falls")
    return Look.of(made, "it takes two models or more at two GPU clocks or more")


def cpu_and_cores_cut_stall(evidence: Population) -> Look:
    checks: list[Check] = []
    missing = []
    for name, words in (("cpu_mhz", "CPU clock"), ("cores", "number of cores")):
        found = _clocked(evidence, metrics.STALL, name)
        checks += tendency(f"stall, from the lowest {words} to the highest", found, "falls")
        missing += [] if found else [f"the {words} was not varied with everything else the same"]
        compute, order = _clocked(evidence, metrics.COMPUTE, name), evidence.model_order
        model = factor_named(compute, "model")
        if model is not None and order:
            lightest = min(order, key=order.__getitem__)
            about = f"compute of {title_of('models', str(lightest))}, from the lowest {words} to the highest"
            checks += tendency(about, at(compute, model, lightest), "falls")
    return Look(checks, missing)


def memory_clock_matters(evidence: Population) -> Look:
    checks: list[Check] = []
    missing = []
    for names in (metrics.COMPUTE, metrics.STALL):
        found = _clocked(evidence, names, "mem_mhz")
        checks += tendency(f"{metrics.WORDS[names]}, from the lowest memory clock to the highest", found, "falls")
        missing += [] if found else ["the memory clock was not varied with everything else the same"]
    return Look(checks, list(dict.fromkeys(missing)))


def _clocked(evidence: Population, names: Names, clock: str) -> Cells:
    """A figure of training on bare metal at the highest of a clock, less at the lowest."""
    cells = by_clocks(where(evidence.cells(names, trains), is_bare))
    return trend(cells, factor_named(cells, clock), rising)


def four_modes_predict_time(evidence: Population) -> Look:
    found = grid(evidence)
    if found is None:
        return Look(missing=[NO_GRID])
    times, _ = errors(found)
    cells = dict(zip(found.workloads, times, strict=True))
    about = f"error of the time that the paper's regression predicts, {found.told}"
    return Look(tendency(about, cells, "falls", bound=PREDICTED - 1, kind="share"), depends_on=found.not_modes)


def most_predictions_are_close(evidence: Population) -> Look:
    found = grid(evidence)
    if found is None:
        return Look(missing=[NO_GRID])
    about = f"predictions of time with an error below {CLOSE:.0%}, of all, {found.told}".replace("%", " %")
    cells: Cells = {frozenset(): close_share(found, CLOSE)}
    return Look(tendency(about, cells, "rises", bound=MOST_CLOSE - 1, kind="share"), depends_on=found.not_modes)


def energy_is_harder(evidence: Population) -> Look:
    found = grid(evidence)
    if found is None:
        return Look(missing=[NO_GRID])
    times, energies = errors(found)
    if len(energies) < len(times):
        return Look(missing=[evidence.absent(metrics.ENERGY)])
    pairs = zip(found.workloads, energies, times, strict=True)
    cells = {cell: energy.minus(time) for cell, energy, time in pairs}
    about = f"error of the energy that the paper's regression predicts against that of time, {found.told}"
    return Look(tendency(about, cells, "rises"), depends_on=found.not_modes)


NO_GRID = (
    "it takes two models or more in the same six power modes or more, each with its cores and clocks, or under the "
    "same five shares of the CPU's time or numbers of cores"
)

CLAIMS = (
    Claim("s3.gain-of-pipelining-depends-on-the-model", "5.1.4",
          "what pipelining saves depends on the model: most where the stall is a large part of the step", "s3-pipeline",
          gain_of_pipelining_depends_on_model),
    Claim("s3.medium-matters-by-io-pressure", "5.2.1",
          "a faster medium helps in epoch 0 only as far as the data press on it", "s3-storage",
          medium_matters_by_pressure),
    Claim("s3.larger-batches-until-saturation", "5.3.1",
          "larger batches cut the time of an epoch until the GPU saturates", "s3-batch",
          larger_batches_until_saturation, scale="cuda"),
    Claim("s3.stall-rises-a-batch-and-falls-an-epoch", "5.3.2",
          "stall per mini-batch rises and per epoch falls with batch size", "s3-batch", stall_by_batch),
    Claim("s3.epochs-vary-little", "5.4.1", "epochs after the first vary little", "s3-variability", epochs_vary_little),
    Claim("s3.devices-vary-little", "5.4.2", "devices of one type vary little", "s3-variability", devices_vary_little,
          across=True),
    Claim("s3.energy-varies-little", "5.4.3", "the energy of an epoch varies little over time", "s3-variability",
          energy_varies_little),
    Claim("s3.software-varies-a-lot", "5.4.4", "software differences vary a lot", "s3-variability",
          software_varies_a_lot, any_of=True, across=True),
    Claim("s3.dvfs-changes-clocks-only", "5.5", "DVFS changes clocks but not time or energy", "s3-dvfs",
          dvfs_changes_nothing),
    Claim("s3.idle-power-by-state", "5.6, Fig. 7", "DVFS lowers idle power, and logging adds little to it",
          "s3-idle-states", idle_power_by_state, of_idle=True),
    Claim("s3.low-gpu-clock-costs-energy", "5.6",
          "a very low GPU clock lowers power and costs both time and energy", "s3-baseload", low_gpu_clock_costs_energy,
          scale="full"),
    Claim("s3.default-mode-may-not-be-pareto", "5.6.1", "the default power mode may not be Pareto-optimal",
          "s3-power-modes", default_may_not_be_pareto, any_of=True, scale="full"),
    Claim("s3.baseload-dominates-light-models", "5.6.2", "baseload dominates the energy of light models", "s3-baseload",
          baseload_dominates_light_models),
    Claim("s3.energy-by-mode-is-modest", "5.6.3",
          "energy varies modestly between power modes for heavier models, MAXN and its neighbours apart",
          "s3-power-modes", energy_by_mode_is_modest, scale="full"),
    Claim("s3.heavier-models-gain-more-from-gpu-clock", "5.6.4", "heavier models gain more from GPU clocks",
          "s3-power-modes", heavier_gain_more_from_gpu, scale="clocks"),
    Claim("s3.cpu-clock-and-cores-cut-stall", "5.6.5, 5.6.6",
          "CPU clock and cores cut stall, and compute of light models", "s3-power-modes", cpu_and_cores_cut_stall),
    Claim("s3.memory-clock-matters-for-both", "5.6.7", "memory clock matters for both compute and stall",
          "s3-power-modes", memory_clock_matters, scale="full"),
    Claim("s3.four-modes-predict-time", "5.7.2", "four modes predict the time of the rest", "s3-predict",
          four_modes_predict_time),
    Claim("s3.most-predictions-are-close", "5.7.2",
          "from four modes more than 70 % of the times of the others are predicted within 10 %", "s3-predict",
          most_predictions_are_close),
    Claim("s3.energy-is-harder-to-predict", "5.7.3", "energy is harder to predict than time", "s3-predict",
          energy_is_harder),
)  # fmt: skip
