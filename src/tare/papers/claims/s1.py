"""S1 and S3: the training pipeline on Jetson boards: workers, storage media, the page cache."""

from __future__ import annotations

import math
from statistics import median

from tare.ext.analysis import (
    ALWAYS_COLD,
    CACHE,
    COLD,
    EVERY,
    FIRST,
    HIDDEN_SHARE,
    NEVER,
    WARM,
    WORKERS,
    Record,
    predicted_stall,
    reads,
)
from tare.papers.claims import metrics
from tare.papers.claims.checks import (
    SAME,
    UNSURE,
    by_speed,
    conditions,
    each,
    excused,
    medium_effect,
    reads_in,
    tendency,
)
from tare.papers.claims.metrics import Cell, factor_named, level, medium_factor, trains
from tare.papers.claims.model import (
    Cells,
    Claim,
    Look,
    Population,
    Series,
    against,
    at,
    by_level,
    ends,
    joined,
    levels,
    minus,
    rising,
    trend,
    where,
)

MOST = 0.5  # "most of the stall" is more than half of it
NEAR = 0.15  # a prediction within this of what was measured is right: a pipeline's fill and jitter are not in it
_MEMORY = "platform.memory"
NO_WORKERS = "no pipeline was run both without workers and with one"
NO_MEDIA = "only one storage medium was measured"
_MEDIA = ("slowest medium", "fastest medium")


def one_worker_removes_most(evidence: Population) -> Look:
    cells = against(evidence.cells(metrics.STALL), WORKERS, 1, 0)
    return Look.of(tendency("fetch stall, one worker against none", cells, "falls", bound=MOST - 1), NO_WORKERS)


_NOTHING_LEFT = "one worker hides this fetch already, and leaves nothing to more of them"
_FROM_MEMORY = "no trial reads from the medium in every epoch (`page_cache: cold_every_epoch`): nothing is hidden"


def more_workers_help_slow_media(evidence: Population) -> Look:
    """From one worker to the most: the slowest medium, or the fastest GPU, gains and the other end does not.

    Of media only trials tell that read from them in every epoch: after epoch 0 the others find all in memory.
    """
    cells = evidence.cells(metrics.MEAN_STEP, lambda record: (record.settings.get(WORKERS) or 0) >= 1)
    always_cold, gains = (ends(each, WORKERS, rising) for each in (at(cells, CACHE, ALWAYS_COLD), cells))
    slow, fast, what = found if all((found := _slow_and_fast(always_cold))[:2]) else _slow_and_fast(gains)
    if not slow or not fast:
        several = "several workers on two media, or at two GPU clocks, were not measured with everything else the same"
        return Look(missing=[several])
    if what == _MEDIA:
        if any(reads(level(cell, CACHE)) in (FIRST, NEVER) for cell in (*slow, *fast)):
            return Look(missing=[_FROM_MEMORY])
        media = medium_effect(evidence, medium_factor(slow))
        slow, fast = media.of(slow), media.of(fast)
    if not slow or not fast:
        return Look(missing=[SAME])
    floor = evidence.floor(metrics.MEAN_STEP)
    helped = tendency(f"end-to-end time, most workers against one, {what[0]}", slow, "falls", floor=floor)
    shares = minus(evidence.cells(metrics.STALL), evidence.cells(metrics.MEAN_STEP))
    one_worker_hides = all(_is_hidden(shares.get(cell | {(WORKERS, 1)})) for cell in slow)
    checks = excused(helped, _NOTHING_LEFT if one_worker_hides else "")
    checks += tendency(f"end-to-end time, most workers against one, {what[1]}", fast, "same", floor=floor)
    return Look(checks)


def _slow_and_fast(cells: Cells) -> tuple[Cells, Cells, tuple[str, str]]:
    """The cells where the disk is slowest beside the GPU, and those where it is fastest."""
    medium, clock = medium_factor(cells), factor_named(cells, "gpu_mhz")
    if len(known := by_speed(cells, medium)) > 1:
        return at(cells, medium, known[0]), at(cells, medium, known[-1]), _MEDIA
    if len(found := sorted(map(float, filter(rising, levels(cells, clock))))) > 1:
        return at(cells, clock, found[-1]), at(cells, clock, found[0]), ("fastest GPU", "slowest GPU")
    return {}, {}, ("", "")


def hidden_medium_is_enough(evidence: Population) -> Look:
    """Wherever a slower medium's stall is a small part of the step, the fastest medium gains nothing."""
    medium = medium_factor(everywhere := evidence.cells(metrics.MEAN_STEP))
    if medium is None or len(levels(everywhere, medium)) < 2:
        return Look(missing=[NO_MEDIA])
    media = medium_effect(evidence, medium)
    # Where the cache keeps what epoch 0 has read, that is what hides the medium.
    from_medium = reads_in(EVERY, None)
    steps, stalls = (evidence.cells(names, from_medium) for names in (metrics.MEAN_STEP, metrics.STALL))
    if len(levels(steps, medium)) < 2:
        return Look(missing=[_FROM_MEMORY])
    steps, stalls = media.of(steps), media.of(stalls)
    if len(levels(steps, medium)) < 2:
        return Look(missing=[SAME])
    speeds, shares = by_speed(stalls or steps, medium), minus(stalls, steps)
    hidden = {
        cell: series.minus(fastest)
        for rest, found in by_level(steps, medium).items()
        if (fastest := found.get(speeds[-1])) is not None
        for value, series in found.items()
        if value != speeds[-1] and _is_hidden(shares.get(cell := rest | {(medium, value)}))
    }
    about = "end-to-end time, a slower medium with its stall hidden against the fastest"
    made = tendency(about, hidden, "same", floor=evidence.floor(metrics.MEAN_STEP))
    return Look.of(made, "no slower medium's stall was hidden", depends_on=UNSURE if media.unsure else "")


def _is_hidden(share: Series | None) -> bool:
    return share is not None and median(share.values.values()) <= math.log(HIDDEN_SHARE)


def cache_makes_medium_irrelevant(evidence: Population) -> Look:
    """After epoch 0, with no workers to hide it, the slowest medium is as fast as the fastest; in epoch 0 it is not."""

    def fills_the_cache(record: Record) -> bool:
        holds_all = record.settings.get(_MEMORY) is None  # limited, it may hold a part of the data alone
        return holds_all and reads(record.settings.get(CACHE)) not in (EVERY, NEVER)

    def filling(names: metrics.Names) -> Cells:
        cells = evidence.cells(names, fills_the_cache)
        numbers = [number for each in levels(cells, WORKERS) if (number := rising(each)) is not None]
        return at(cells, WORKERS, min(numbers)) if numbers else cells

    later, first = filling(metrics.MEAN_STEP), filling(metrics.EPOCH0_STEP)
    if not later:
        return Look(missing=["no trial fills the page cache in its first epoch (`page_cache: cold`)"])
    medium = medium_factor(later)
    if len(levels(later, medium)) < 2:
        return Look(missing=[NO_MEDIA])
    if not first:
        return Look(missing=["no trial has more than one epoch"])
    media = medium_effect(evidence, medium)
    later, first = media.of(later), media.of(first)
    if len(levels(later, medium)) < 2 or not first:
        return Look(missing=[SAME])
    speeds = by_speed(first, medium)
    floor = evidence.floor(metrics.MEAN_STEP)
    kept, unread = (against(cells, medium, speeds[0], speeds[-1]) for cells in (later, first))
    after = tendency("end-to-end time after epoch 0, slowest medium against fastest", kept, "same", floor=floor)
    before = tendency("end-to-end time in epoch 0, slowest medium against fastest", unread, "rises", floor=floor)
    return Look((*after, *conditions(before)))


def caching_has_a_sweet_spot(evidence: Population) -> Look:
    """A warm cache helps where fetching outweighs pre-processing (the cold stall is over twice the warm), else not."""
    stalls, steps = evidence.cells(metrics.STALL), evidence.cells(metrics.MEAN_STEP)
    cold = next((name for name in (ALWAYS_COLD, COLD) if name in levels(steps, CACHE)), None)
    if cold is None or WARM not in levels(steps, CACHE):
        return Look(missing=["no workload was run with a cold and with a warm page cache"])
    dearer, gains = against(stalls, CACHE, cold, WARM), against(steps, CACHE, WARM, cold)
    sweet = {cell for cell, series in dearer.items() if median(series.values.values()) > math.log(2)}
    floor = evidence.floor(metrics.MEAN_STEP)
    inside, outside = where(gains, lambda cell: cell in sweet), where(gains, lambda cell: cell not in sweet)
    about = "end-to-end time, warm against cold, where"
    checks = tendency(f"{about} fetching outweighs pre-processing", inside, "falls", floor=floor)
    checks += tendency(f"{about} pre-processing outweighs fetching", outside, "same", floor=floor)
    missing = [] if inside else ["no workload whose fetching outweighs its pre-processing"]
    missing += [] if outside else ["no workload whose pre-processing outweighs its fetching"]
    return Look(checks, missing)


_SAME_CAP = "an emulated medium is a limit that stays as it is when the data grow, as a disk with its seeks does not"


def linear_on_fast_media(evidence: Population) -> Look:
    """Time per mini-batch does not depend on the size of the data on the fastest medium; on the slowest it rises."""
    cells = evidence.cells(metrics.MEAN_STEP, trains)
    medium, grown = medium_factor(cells), trend(cells, factor_named(cells, "items", "data_scale"), rising)
    if not grown:
        return Look(missing=["the size of the data set was not varied with everything else the same"])
    about, floor = "time per mini-batch, from the smallest data set to the largest", evidence.floor(metrics.MEAN_STEP)
    if medium is None or len(levels(grown, medium)) < 2:
        return Look(tendency(about, grown, "same", floor=floor), [NO_MEDIA])
    media = medium_effect(evidence, medium)
    cells, grown = media.of(cells), media.of(grown)
    if len(levels(grown, medium)) < 2:
        return Look(missing=[SAME])
    speeds = by_speed(cells, medium)
    checks = tendency(f"{about}, fastest medium", at(grown, medium, speeds[-1]), "same", floor=floor)
    slower = tendency(f"{about}, slowest medium", at(grown, medium, speeds[0]), "rises", floor=floor)
    limited = any(level(cell, _MEMORY) is not None for cell in grown)
    return Look(checks + excused(slower, _SAME_CAP if medium.endswith(".emulate") and not limited else ""))


def pipelining_lowers_energy(evidence: Population) -> Look:
    cells = evidence.cells(metrics.ENERGY)
    if not cells:
        return Look(missing=[evidence.absent(metrics.ENERGY)])
    with_any = {
        rest: series
        for rest, found in by_level(cells, WORKERS).items()
        if 0 in found and (most := max((n for each in found if (n := rising(each)) is not None), default=0.0)) > 0
        if (series := found[most].minus(found[0])).values
    }
    return Look.of(tendency("energy, with workers against without", with_any, "falls", margin=0.02), NO_WORKERS)


def relative_speeds_decide(evidence: Population) -> Look:
    """The step that disk and CPU (the fetch without workers, shared out) and the rest predict is what is measured."""
    steps, stalls = evidence.cells(metrics.MEAN_STEP, trains), evidence.cells(metrics.STALL, trains)
    off: dict[Cell, Series] = {}
    for rest, found in by_level(steps, WORKERS).items():
        plain, stall = found.get(0), stalls.get(rest | {(WORKERS, 0)})
        if plain is None or stall is None:
            continue
        for workers, series in found.items():
            if (number := rising(workers)) and (apart := _off(series, stall, plain, number)).values:
                off[rest | {(WORKERS, workers)}] = apart
    return Look.of(each("measured step against the predicted", off, "same", margin=NEAR), NO_WORKERS)


def _off(step: Series, stall: Series, plain: Series, workers: float) -> Series:
    """By how much the step with so many workers is off what the fetch and the rest without workers say."""

    def apart(log_step: float, log_stall: float, log_plain: float) -> float:
        fetch_s = math.exp(log_stall)
        others_s = max(1e-12, math.exp(log_plain) - fetch_s)
        return log_step - math.log(others_s + predicted_stall(fetch_s, others_s, workers))

    return joined([step, stall, plain], apart)


_S3 = ("s3",)
CLAIMS = (
    Claim("s1.one-worker-removes-most-of-the-stall", "III-A; S3 5.1.3", "one worker removes most of the stall",
          "s1-workers", one_worker_removes_most, also=_S3),
    Claim("s1.more-workers-help-only-slow-media-or-fast-gpus", "III-B; S3 5.1.6",
          "more workers help only slow media or fast GPUs", "s1-storage", more_workers_help_slow_media, also=_S3),
    Claim("s1.hidden-medium-is-enough", "III-C; S3 5.2.2", "a medium whose fetch is hidden by compute is enough",
          "s1-storage", hidden_medium_is_enough, also=_S3),
    Claim("s1.page-cache-makes-the-medium-irrelevant", "III-D; S3 5.2.2",
          "enough page cache makes the medium irrelevant after epoch 0", "s1-storage", cache_makes_medium_irrelevant,
          also=_S3),
    Claim("s1.caching-helps-only-in-the-sweet-spot", "S3 5.1.2",
          "caching helps only in the sweet spot: fetching outweighs pre-processing", "s3-pipeline",
          caching_has_a_sweet_spot, also=_S3),
    Claim("s1.linear-on-fast-media", "III-E, III-F",
          "end-to-end time grows linearly with data on fast media, faster on slow ones", "s1-dataset-scale",
          linear_on_fast_media, also=_S3),
    Claim("s1.pipelining-lowers-energy", "S3 5.1.7", "pipelining lowers energy", "s3-pipeline",
          pipelining_lowers_energy, also=_S3),
    Claim("s1.relative-speeds-decide", "III-B; S3 5.1.5", "the relative speeds of disk, CPU and GPU decide",
          "s3-pipeline", relative_speeds_decide, also=_S3),
)  # fmt: skip
