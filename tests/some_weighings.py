"""Sample weighings for the tests of the report: a normal one, and one for each way in which a run can fall short."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from some_records import because
from tare.analysis.model import Comparison, Difference, Estimate, FlaggedTrial, Measurement, Weighing
from tare.records.model import Record

QUESTION = "container (docker) vs bare metal, LeNet-5 training, batch 16"
GENERATED = "2026-11-15 03:12 UTC"
STUDY_TEXT = """study: weigh
about: What does a container cost when training LeNet-5?
platform: [bare, docker]
workload:
  torch_train: {model: lenet5, data: mnist, batch: 16}
compare: {against: {platform: bare}, margin: 5%}
"""
_MEDIANS = {
    "step_s": 0.00184,
    "cpu_s": 3.10,
    "stall_s": 0.000231,
    "compute_s": 0.00155,
    "overhead_s": 0.000059,
    "wall_s": 4.21,
}
_SOFTWARE = {
    "python": {"version": "3.11.7", "executable": "/usr/bin/python3"},
    "torch": {"version": "2.13.0+cpu", "blas": "openblas", "threads": 1, "interop": 1},
    "libc": "glibc 2.36",
    "seccomp": 0,
}
_DEVICE = {
    "kernel": "6.18.5",
    "machine": "aarch64",
    "cpu": {"model": "Neoverse-N1", "online": 2},
    "memory_bytes": 25_000_000_000,
    "power": {"governor": None},
}


def estimate(value: float, n: int = 12, spread: float = 0.01) -> Estimate:
    known = n >= 6
    low, high = (value * (1 - spread), value * (1 + spread)) if known else (None, None)
    return Estimate(value, low, high, n, "median, order statistics 96.1 %")


def comparison(level: str = "docker", metric: str = "step_s", *, n: int = 12, **changes: object) -> Comparison:
    theirs = _MEDIANS.get(metric, 1.0)
    normal = Comparison(
        metric=metric,
        level=level,
        against="bare",
        effect=0.016,
        low=0.004,
        high=0.029,
        verdict="equivalent",
        margin=0.05,
        n=n,
        mde=0.015,
        paired=True,
        method="median of paired ratios, order statistics 96.1 %",
        p=0.02,
        aa_floor=0.009,
        ours=estimate(theirs * 1.0163, n),
        theirs=estimate(theirs, n),
    )
    return replace(normal, **changes)  # type: ignore[arg-type]


def others(level: str = "docker") -> tuple[Comparison, ...]:
    return (
        comparison(level, "cpu_s", effect=0.006, low=-0.002, high=0.014, ours=estimate(3.12)),
        comparison(level, "stall_s", effect=0.121, low=0.061, high=0.184, ours=estimate(0.000259)),
        comparison(level, "compute_s", effect=0.002, low=-0.006, high=0.009, ours=estimate(0.00155)),
        comparison(level, "wall_s", effect=0.019, low=0.008, high=0.034, ours=estimate(4.29)),
    )


def records(
    levels: Sequence[str] = ("bare", "docker"),
    blocks: int = 12,
    *,
    seed: int = 7,
    effects: Sequence[float] = (0, 0.016),
) -> list[Record]:
    """Trials as a run would leave them: shuffled in each block, a twin of the baseline, one outlier, some drift."""
    chance = random.Random(seed)
    made = []
    for block in range(blocks):
        slots = [(level, 0) for level in levels] + [(levels[0], 1)]
        chance.shuffle(slots)
        drift = 1 + 0.02 * chance.gauss(0, 1)
        for position, (level, twin) in enumerate(slots):
            factor = drift * (1 + effects[levels.index(level)]) * (1 + 0.006 * chance.gauss(0, 1))
            made.append(_record(level, twin, block, position, factor * (1.12 if block == 8 and twin == 0 else 1)))
    return made


def _record(level: str, twin: int, block: int, position: int, factor: float) -> Record:
    number = block * 100 + position
    opened = {"bare": (0.0004, 0.001, 0.0002)}.get(level, (0.31, 0.09, 0.22))
    phases = {"open": opened[0], "enter": opened[1], "run": 4.21 * factor, "close": opened[2]}
    return Record(
        trial=hashlib.sha256(str(number).encode()).hexdigest()[:16],
        attempt=0,
        study="weigh",
        block=block,
        position=position,
        twin=twin,
        settings={"platform": level, "workload": "torch_train", "workload.batch": 16, "probes": "cpu,memory"},
        state="suspect" if block == 5 and position == 1 else "ok",
        reasons=(because("Something else used 3 % of the CPU.", "suspect"),) if block == 5 and position == 1 else (),
        metrics={name: value * factor for name, value in _MEDIANS.items()},
        phases=phases,
        facts={"device": _DEVICE, "inside": {**_SOFTWARE, "seccomp": 0 if level == "bare" else 2}},
        started_utc="2026-11-15T03:02:00Z",
        start_ns=number * 10**10,
        end_ns=number * 10**10 + 5 * 10**9,
        tare_version="0.1.0",
    )


def weighing(from_records: Sequence[Record] = (), **changes: object) -> Weighing:
    """The normal case: one container against bare metal, an interval inside the margin."""
    used = from_records or records()
    levels = list(dict.fromkeys(record.settings["platform"] for record in used))
    measured = [
        Measurement(record.settings["platform"], record.metrics["step_s"], str(record.block), record.twin, record.trial)
        for record in used
        if record.state in ("ok", "suspect")
    ]
    normal = Weighing(
        study="weigh",
        question=QUESTION,
        by="platform",
        against="bare",
        metric="step_s",
        comparisons=(comparison(),),
        others=others(),
        differences=(Difference("seccomp", "docker", "bare", 2, 0, False, "the container's own filter"),),
        counts={"planned": len(used), "ok": len(used)},
        measurements=tuple(measured),
        medians={level: _level_medians(level) for level in sorted(levels)},
        phases={record.settings["platform"]: record.phases for record in used[:8] if not record.twin},
        facts=_DEVICE,
    )
    return replace(normal, **changes)  # type: ignore[arg-type]


def _level_medians(level: str) -> dict[str, Estimate]:
    factors = {"bare": 1.0, "runc": 1.004, "gvisor": 1.28}
    return {metric: estimate(value * factors.get(level, 1.0163)) for metric, value in _MEDIANS.items()}


@dataclass(frozen=True)
class Sample:
    """What a report is made from."""

    weighing: Weighing
    records: list[Record]


def normal() -> Sample:
    return Sample(weighing(), records())


def cannot_tell() -> Sample:
    wide = comparison(effect=0.021, low=-0.034, high=0.081, verdict="cannot_tell", more_trials=9, mde=0.07)
    stopped = "The stop rule was not met after 12 blocks, its cap."
    return Sample(weighing(comparisons=(wide,), notes=(stopped,)), records())


def too_few() -> Sample:
    few = comparison(n=3, low=None, high=None, verdict="cannot_tell", mde=None, aa_floor=None, more_trials=3)
    used = records(blocks=3)
    return Sample(weighing(used, comparisons=(few,), others=()), used)


def slower() -> Sample:
    far = comparison(effect=0.28, low=0.12, high=0.61, verdict="slower", ours=estimate(0.00236))
    return Sample(weighing(comparisons=(far,)), records())


def tainted() -> Sample:
    """Another torch on one side, two trials lost, one outlier, two not run yet, medians that tell another story."""
    taint = "torch.version: docker has 2.12.1, bare has 2.13.0+cpu (another build of torch)"
    torch = Difference("torch.version", "docker", "bare", "2.12.1", "2.13.0+cpu", True, "another build of torch")
    lost = {
        10: ("invalid", "The machine swapped 12 pages."),
        22: ("timeout", "It ran past its limit of 300 s."),
    }
    made = [
        replace(record, state=lost[place][0], reasons=(because(lost[place][1]),), metrics={})
        if place in lost
        else record  # type: ignore[arg-type]
        for place, record in enumerate(records())
    ]
    odd = next(record for record in made if record.block == 8 and record.settings["platform"] == "bare")
    told = weighing(
        made,
        comparisons=(comparison(tainted=(taint,), ours=estimate(0.00182)),),
        differences=(torch, Difference("seccomp", "docker", "bare", 2, 0, False, "")),
        left_out=tuple(_left(made[place]) for place in lost),
        outliers=(replace(_left(odd), reasons=(because("12 % above the median of its level.", "note"),)),),
        counts={"planned": 38, "ok": 33, "suspect": 1, "invalid": 1, "timeout": 1},
        notes=("Minor faults flip between runs: glibc's malloc trims the heap (malloc: fixed ends it).",),
    )
    return Sample(told, made)


def _left(record: Record) -> FlaggedTrial:
    return FlaggedTrial(record.trial, record.settings["platform"], record.block, record.state, record.reasons)


def several() -> Sample:
    used = records(("bare", "docker", "runc", "gvisor"), effects=(0, 0.016, 0.004, 0.28))
    far = {"effect": 0.28, "low": 0.12, "high": 0.61, "ours": estimate(0.00236)}
    told = weighing(
        used,
        question="four platforms, LeNet-5 training, batch 16",
        comparisons=(
            comparison("docker", confidence=0.983),
            comparison(
                "runc", effect=0.004, low=-0.008, high=0.013, confidence=0.983, ours=estimate(0.001847), mde=0.012
            ),
            comparison("gvisor", verdict="slower", confidence=0.983, **far),
        ),
        others=(*others("docker")[:1], *others("runc")[:1], *others("gvisor")[:1]),
    )
    return Sample(told, used)


def empty() -> Sample:
    return Sample(Weighing("weigh", QUESTION, "platform", "bare", "step_s", (), counts={"planned": 24}), [])


def half_finished() -> Sample:
    """Every trial of one side failed, and most of the plan has not been run."""
    seen = [record for record in records() if record.block < 3]
    made = [
        replace(record, state="failed", reasons=(because("The image was not found.", "failed"),), metrics={}, facts={})
        if record.settings["platform"] == "docker"
        else record
        for record in seen
    ]
    bare = [record for record in made if record.state == "ok"]
    nothing = {"effect": None, "low": None, "high": None, "ours": None, "mde": None, "more_trials": None}
    told = weighing(
        bare,
        comparisons=(comparison(verdict="cannot_tell", n=0, **nothing),),
        others=(),
        left_out=tuple(_left(record) for record in made if record.state == "failed"),
        counts={"planned": 36, "ok": 6, "failed": 3},
        differences=(),
    )
    return Sample(told, made)


SAMPLES = {
    make.__name__: make for make in (normal, cannot_tell, too_few, slower, tainted, several, empty, half_finished)
}
