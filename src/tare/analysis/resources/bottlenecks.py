"""What holds work back: what a GPU waited for, and the rate up to which a server keeps up."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, TypeAlias

from tare.analysis.cells import far_from_block
from tare.analysis.labels import distinguishing, make_labels
from tare.analysis.model import Estimate
from tare.analysis.numeric.medians import median_estimate
from tare.analysis.selection import FIRST_TOKEN, GOAL_RATE, SHORT_TAIL, TAIL
from tare.base.declare import Group, Role
from tare.base.rulings import Ruling
from tare.base.text import share_text, time_text
from tare.records.model import Record, counted_attempts, device_of, grouped, is_usable, started_s, usable_trials

# The knee of a server: the highest rate of an open loop up to which goodput follows the rate.
#
# Where the study has a goal for a share of the requests, also the highest rate that meets it, of each side and block:
# so that the sides are compared by it like by any other figure.

RATE, GOODPUT, OFFERED = "workload.rate", Role.GOODPUT.metric, Role.OFFERED.metric
GOAL, GOAL_OF, SHARE, COUNT = "workload.goal", "workload.goal_of", "workload.goal_share", "workload.count"
AT_ONE_RATE = (TAIL, SHORT_TAIL, FIRST_TOKEN)
FEWEST_RATES = 2
BEYOND, MOST_BEYOND = "figure.beyond-rates", 0.2  # of a side's blocks: where there are more, nothing is compared
MISSING = "figure.rates-missing"
FOLLOWS = 0.95  # of the rate: goodput that is as high follows it


def knee_sentences(records: Sequence[Record]) -> tuple[str, ...]:
    """One for each server that was driven at several rates, all else being the same: its platforms, say."""
    served = [
        record
        for record in usable_trials(records, repeats=False)
        if GOODPUT in record.metrics and isinstance(record.settings.get(RATE), int | float)
    ]
    names = [name for name in distinguishing([record.settings for record in served]) if name != RATE]
    labels = make_labels([record.settings for record in served], names)
    found = []
    for series, its in grouped(served, lambda record: str(labels.words(record.settings))).items():
        places = grouped(its, lambda record: float(str(record.settings[RATE])))
        if len(places) >= FEWEST_RATES:
            goodput = {rate: [each.metrics[GOODPUT] for each in here] for rate, here in places.items()}
            nominal = {rate: [at_rate(each).metrics[GOODPUT] for each in here] for rate, here in places.items()}
            found.append(knee_sentence(series or "the server", goodput, nominal))
    return tuple(sorted(found))


def at_rate(record: Record) -> Record:
    """With the goodput that it would have at just its rate: requests that come at random are a few more or fewer."""
    offered, rate = record.metrics.get(OFFERED), record.settings.get(RATE)
    if not offered or not isinstance(rate, int | float):
        return record
    return replace(record, metrics={**record.metrics, GOODPUT: record.metrics[GOODPUT] * rate / offered})


def knee(goodput: Mapping[float, Sequence[float]]) -> float | None:
    """The highest rate up to which the goodput of every rate follows it; None where it never does."""
    found = None
    for rate, values in sorted(goodput.items()):
        if median_estimate(values).value < FOLLOWS * rate:
            break
        found = rate
    return found


def knee_sentence(
    series: str, goodput: Mapping[float, Sequence[float]], nominal: Mapping[float, Sequence[float]]
) -> str:
    """By the goodput at just each rate (`nominal`); what is told is what was measured, as everywhere else."""
    at, lowest, highest = knee(nominal), min(goodput), max(goodput)
    if at is None:
        return f"{series}: goodput is behind even the lowest rate, {lowest:g}/s."
    if at == highest:
        return f"{series}: goodput follows the rate up to the highest, {highest:g}/s: the knee lies above."
    after = min(rate for rate in goodput if rate > at)
    behind = median_estimate(goodput[after]).value
    if len(goodput) == FEWEST_RATES:
        return f"{series}: keeps up at {at:g}/s, not at {after:g}/s: goodput is {behind:.3g}/s; the knee lies between."
    return f"{series}: goodput follows the rate up to {at:g}/s, the knee; at {after:g}/s it is {behind:.3g}/s."


# The highest rate that meets a goal


def has_goal(records: Sequence[Record]) -> bool:
    whole = bool(records) and all({SHARE, RATE, COUNT} <= record.settings.keys() for record in records)
    return whole and len({record.settings[RATE] for record in records}) > 1


def by_goal(records: Sequence[Record]) -> list[Record]:
    """Each side of a block as one trial: the highest rate that meets the goal, and the tail at a rate of all sides."""
    records = counted_attempts(records)
    apart = _run_again_later(records)
    found: list[Record] = []
    at = common_rate(records)
    for held in grouped(records, _side).values():
        run = list(grouped(held, lambda r: (r.block, r.twin)).values())
        blocks = [_of_block(its, at, apart) for its in run]
        beyond = sum(
            block.state == "invalid" and any(is_usable(each) and each.trial not in apart for each in its)
            for block, its in zip(blocks, run, strict=True)
        )
        few = beyond <= MOST_BEYOND * len(blocks)
        found += blocks if few else [_unused(each, beyond, len(blocks)) for each in blocks]
    return found


def _run_again_later(records: Sequence[Record]) -> set[str]:
    """Trials that began far from the rest of their block on their device; none where it is not known of each."""
    begun = [started_s(record) for record in records]
    if None in begun:
        return set()
    places = [(device_of(record), record.block, record.twin) for record in records]
    far = far_from_block([(place, at or 0.0) for place, at in zip(places, begun, strict=True)])
    return {record.trial for record, is_far in zip(records, far, strict=True) if is_far}


def _unused(block: Record, beyond: int, blocks: int) -> Record:
    """Blocks in which the goal was far from the rates are the evidence: the others alone would tell another story."""
    sentence = f"in {beyond} of {blocks} blocks of this side the highest rate is not known: the others alone mislead."
    why = block.reasons if block.state == "invalid" else (Ruling(BEYOND, "invalid", RATE, sentence),)
    return replace(block, state="invalid", reasons=why)


def common_rate(records: Sequence[Record]) -> float | None:
    """The lowest rate that every side has."""
    rates = [{each.settings[RATE] for each in held} for held in grouped(records, _side).values()]
    return min(set.intersection(*rates), default=None)


def goal_sentence(records: Sequence[Record]) -> tuple[str]:
    """What the goal is, at which rates it was looked for, and at which one the tail is judged."""
    settings, at = records[0].settings, common_rate(records)
    rates = {record.settings[RATE] for record in records}
    done = "have their first token" if settings.get(GOAL_OF) == "first_token" else "are answered"
    tail = "" if at is None else f" The tail is that at {at:g}/s."
    return (
        f"goal: {share_text(settings[SHARE])} of the requests {done} within {time_text(settings[GOAL])}; found in each "
        f"block between {len(rates)} rates from {min(rates):g}/s to {max(rates):g}/s.{tail}",
    )


def _side(record: Record) -> str:
    return json.dumps({**record.settings, RATE: None}, sort_keys=True, default=str)


def _of_block(every: Sequence[Record], at: float | None, apart: Collection[str]) -> Record:
    """`apart`: trials that were run again long after the rest of their block, on another day of the machine's."""
    its = [record for record in every if record.trial not in apart]
    late = {record.settings[RATE]: late_share(record) for record in its if is_usable(record)}
    found = crossing(late, 1 - every[0].settings[SHARE])
    first = next((record for record in its if record.settings[RATE] == at and is_usable(record)), None)
    metrics = {} if first is None else {name: first.metrics[name] for name in AT_ONE_RATE if name in first.metrics}
    told = first or next(iter(its), every[0])
    reasons = {each.code: each for record in its if is_usable(record) for each in record.reasons}
    if 0 < len(late) < len(every):
        sentence = (
            f"{len(every) - len(late)} of {len(every)} rates of this block cannot be used: it is read off the others."
        )
        reasons[MISSING] = Ruling(MISSING, "suspect", RATE, sentence)
    one = replace(
        told,
        settings={name: value for name, value in told.settings.items() if name != RATE},
        facts={name: value for name, value in told.facts.items() if name != "title"},
        state="suspect" if MISSING in reasons or any(record.state == "suspect" for record in its) else "ok",
        reasons=tuple(reasons.values()),
        metrics={**metrics, GOAL_RATE: found},
    )
    if found and math.isfinite(found):
        return one
    where = "no trial of it can be used" if its else "all its trials were run again much later"
    if late:
        where = f"{max(late):g}/s still meets the goal" if found else f"even {min(late):g}/s misses the goal"
    sentence = f"{where}: the highest rate of this block is not known."
    why = Ruling(BEYOND, "invalid", RATE, sentence)
    return replace(one, state="invalid", reasons=(why,))


def late_share(record: Record) -> float:
    """The share of requests that are not good, as if half a request more were: of none it is not zero."""
    metrics, sent = record.metrics, record.settings[COUNT]
    answered = metrics.get("requests_per_s", 0.0)
    good = metrics.get(GOODPUT, 0.0) / answered * (1 - metrics.get("failed_share", 0.0)) if answered else 0.0
    return float(((1 - good) * sent + 0.5) / (sent + 1))


def crossing(late: Mapping[float, float], most: float) -> float:
    """The rate at which the share that is late reaches `most`, by its logarithm between the two rates around it.

    Shares that fall as the rate rises are chance, and are levelled (isotonic regression). 0 where even the lowest rate
    has more, infinite where none has.
    """
    rates = sorted(late)
    levels: list[list[float]] = []
    for rate in rates:
        levels.append([math.log(late[rate])])
        while len(levels) > 1 and fmean(levels[-2]) > fmean(levels[-1]):
            levels[-2:] = [levels[-2] + levels[-1]]
    even = [fmean(level) for level in levels for _ in level]
    above = next((place for place, each in enumerate(even) if each > math.log(most)), None)
    if not above:
        return math.inf if above is None else 0.0
    part = (math.log(most) - even[above - 1]) / (even[above] - even[above - 1])
    return float(rates[above - 1] * (rates[above] / rates[above - 1]) ** part)


# What a workload's GPU waited for, in one word, and what to change: from the shares of the window that CUPTI saw.

GpuBinds: TypeAlias = Literal["gpu", "copy", "launch", "sync", "data"]

BUSY = Role.GPU_BUSY.metric
ENOUGH_IDLE = 0.1  # a GPU that is idle for less of the time is what the workload is bound by

NAMES: Mapping[GpuBinds, str] = {
    "gpu": "GPU-bound",
    "copy": "copy-bound",
    "launch": "launch-bound",
    "sync": "bound by synchronising calls",
    "data": "waits for data",
}
ADVICE: Mapping[str, str] = {  # by GpuBinds
    "gpu": "the GPU is the limit: lower precision (bf16), fused kernels or a faster GPU shorten the step.",
    "copy": "the GPU mostly copies: use pinned memory and non_blocking copies, or keep the data on the GPU.",
    "launch": "the GPU waits for Python to launch kernels: use torch.compile or CUDA graphs, a larger batch, or fused "
    "optimisers.",
    "sync": "the host waits for the GPU in each step and gives it work late: remove `.item()`, `.cpu()`, `print(loss)` "
    "and copies from pageable memory from the loop.",
    "data": "the GPU waits for mini-batches: add loader workers, or make the data faster (`tare show STORE pipeline`).",
}


def binds(shares: Mapping[str, float]) -> GpuBinds | None:
    """By the largest of what the GPU waited for; None where its activity is not known."""
    if BUSY not in shares:
        return None
    waits: dict[GpuBinds, float] = {
        "launch": shares.get("gpu_launch_share", 0.0),
        "sync": shares.get("gpu_sync_share", 0.0),
        "data": shares.get("gpu_data_share", 0.0),
    }
    copying = shares.get("gpu_copying_share", 0.0)
    if sum(waits.values()) < ENOUGH_IDLE:
        return "copy" if copying > shares[BUSY] / 2 else "gpu"
    most = max(waits, key=lambda name: waits[name])
    return "copy" if copying > waits[most] else most


@dataclass(frozen=True, slots=True)
class GpuUse:
    """What is known of a level's GPUs: medians over its trials."""

    level: str
    figures: Mapping[str, Estimate]  # by metric; those of `Group.GPU` that there are
    binds: GpuBinds | None
    syncs: float = 0.0  # a step
    pageable: float = 0.0  # copies from or to pageable memory, a step
    bound_share: float | None = None  # so far may the energy be off


def gpu_uses(medians: Mapping[str, Mapping[str, Estimate]]) -> list[GpuUse]:
    """One for each level that has figures of a GPU, from `Weighing.medians`."""
    found = []
    for level, figures in medians.items():
        own = {name: figures[name] for name in Group.GPU.metrics if name in figures}
        if not own:
            continue
        shares = {name: figures[name].value for name in Group.GPU_TIME.metrics if name in figures}
        syncs, pageable, bound = (
            figures.get(name) for name in ("gpu_syncs", "gpu_pageable_copies", "energy_bound_share")
        )
        found.append(
            GpuUse(
                level,
                own,
                binds(shares),
                syncs=0.0 if syncs is None else syncs.value,
                pageable=0.0 if pageable is None else pageable.value,
                bound_share=None if bound is None else bound.value,
            )
        )
    return found
