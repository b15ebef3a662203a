"""`tare weigh --server ... --slo "p99 < 300 ms"`: the rates at which the sides are weighed to find the highest.

A search on each side by itself finds where to look. What is judged comes after it: all rates around what was found, on
all sides in turns, in blocks (analysis/resources/bottlenecks.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from tare.api.running import run_into, study_text
from tare.base.errors import TareError
from tare.base.text import heard_by, share_text
from tare.cli.asked import percentile_goal
from tare.cli.scaffold import need, reading, say
from tare.records.model import counted_attempts, is_usable

STEP = 0.05  # two rates are at least so far apart
AROUND = (-3, -1, 0, 1, 3)  # the rates of a side: so many steps from what the search found
WITHIN = 2 * STEP  # the search ends when a rate that meets the goal and one that misses it are no further apart
FEWEST_LATE = 10  # requests that may miss the goal: with fewer, chance decides
FIRST_LOOK = 200  # requests, one after the other
SLOWEST = 1 / 64  # of the rate of the first look: below it nothing meets the goal
LEAST_LIMIT_S = 600.0  # of a trial


@dataclass
class Found:
    """What was found of one side, in requests per second."""

    met: float | None = None  # the highest rate that meets the goal
    missed: float | None = None  # the lowest that does not
    why_no_more: str = ""  # why the search ended before it was as narrow as it should be
    tried: dict[float, float] = field(default_factory=dict)  # rate -> the share of good requests


def ramp_goal(serving: dict[str, Any], margin: float) -> float | None:
    """The share of requests that must be good, of a goal like `p99 < 300 ms`; None where the goal is a time alone."""
    found = percentile_goal(serving)
    if found is None:
        return None
    need(
        "rate" not in serving and "trace" not in serving, f"--slo {serving['goal']!r} finds the rate: leave --load out."
    )
    need(margin >= STEP, f"--margin: rates are tried {share_text(STEP)} apart, and a smaller margin cannot be decided.")
    share = float(found[1]) / 100
    serving["goal"] = found[2]
    serving.setdefault("count", math.ceil(FEWEST_LATE / (1 - share)))
    least = math.ceil(1 / (1 - share))
    few = f"--slo 'p{found[1]} < ...' with {serving['count']} requests: it takes {least} or more for one of them"
    need(
        int(serving["count"]) >= least,
        f"{few} to be late. Give a higher `--set workload.count=N`, or none, or a lower percentile.",
    )
    return share


def search(share_at: Callable[[float], float], first: float, share: float) -> Found:
    """Doubling from `first`, or halving, until one rate meets the goal and one does not; then the middle of the two."""
    found = Found()
    while not (found.met and found.missed and found.missed <= found.met * (1 + WITHIN)):
        if found.met and found.missed:
            rate = math.sqrt(found.met * found.missed)
        else:
            rate = 2 * found.met if found.met else found.missed / 2 if found.missed else first
        rate = float(f"{rate:.4g}")
        if rate < SLOWEST * first:
            found.why_no_more = f"not even {found.missed:g}/s meets it"
            break
        try:
            found.tried[rate] = share_at(rate)
        except TareError as error:
            found.why_no_more = f"{rate:g}/s could not be measured: {error}"
            break
        if found.tried[rate] >= share:
            found.met = rate
        else:
            found.missed = rate
    return found


def rates_to_try(levels: list[Any], work: dict[str, Any], share: float, folder: Path) -> dict[str, list[float]]:
    """Search on each side by itself; the rates around what was found, at which the sides are weighed."""
    middles, failed = {}, []
    for level in levels:
        side = level if isinstance(level, str) else next(iter(level))

        def loads(name: str, level: Any = level, side: str = side, **load: Any) -> dict[str, Any]:
            plain = {"platform": [level], "workload": {"server": {**work["server"], **load}}, "limit": limit(load)}
            return _load(plain, folder / f"{side}-{name}")

        def share_at(rate: float, loads: Any = loads, side: str = side) -> float:
            load = loads(f"{rate:g}", rate=f"{rate:g}/s", count=work["server"]["count"])
            found = float(load["good"] / load["sent"])
            say(f"  {side}, {rate:g}/s: {share_text(found)} of the requests are good")
            return found

        look = loads("closed", count=min(FIRST_LOOK, work["server"]["count"]))
        found = search(share_at, float(f"{look['ok'] / look['seconds']:.2g}"), share)
        if found.met and found.missed and not found.why_no_more:
            middles[side] = math.sqrt(found.met * found.missed)
        else:
            failed.append(rate_text(side, found, f"{share_text(share)} of the requests are good"))
    if failed:
        raise TareError("\n".join(["the rates to weigh at were not found, so there is no verdict:", *failed]))
    return rates_around(middles)


def limit(load: Mapping[str, Any]) -> str:
    """Of a trial: no less than three times what its requests take."""
    rate = float(str(load.get("rate", "inf")).removesuffix("/s"))
    return f"{LEAST_LIMIT_S + 3 * load['count'] / rate:.0f} s"


def rates_around(middles: Mapping[str, float]) -> dict[str, list[float]]:
    """The rates of each side, on one scale of steps. Sides that are hardly apart have the same; all have the lowest."""
    first = next(iter(middles.values()))
    steps = {side: round(math.log(middle / first) / math.log1p(STEP)) for side, middle in middles.items()}
    if all(abs(step) <= 1 for step in steps.values()):
        first, steps = math.exp(fmean(map(math.log, middles.values()))), dict.fromkeys(steps, 0)
    lowest = min(steps.values()) + AROUND[0]
    return {
        side: [
            float(f"{first * (1 + STEP) ** place:.3g}") for place in sorted({lowest, *(step + each for each in AROUND)})
        ]
        for side, step in steps.items()
    }


def at_rates(
    work: dict[str, Any], rates: Mapping[str, list[float]], share: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The workload at all these rates, and what else a study of them has; a side is not run at the rates of another."""
    every = sorted({rate for own in rates.values() for rate in own})
    others = {side: [rate for rate in every if rate not in own] for side, own in rates.items()}
    server = {**work["server"], "rate": [f"{rate:g}/s" for rate in every], "goal_share": share}
    away = [
        {"platform": side, "workload.rate": [f"{rate:g}/s" for rate in left]} for side, left in others.items() if left
    ]
    longest = limit({"rate": every[0], "count": server["count"]})
    return {"server": server}, {"exclude": away, "aa": False, "rehearse": False, "limit": longest}


def rate_text(side: str, found: Found, goal: str) -> str:
    """`bare: up to 60/s 99 % of the requests are good; 120/s could not be measured: ...`."""
    told = f"{side}: up to {found.met:g}/s {goal}" if found.met else f"{side}: at no rate {goal}"
    missed = f" ({share_text(found.tried[found.missed])} at {found.missed:g}/s)" if found.missed else ""
    return f"{told}{missed}{f'; {found.why_no_more}' if found.why_no_more else ''}"


def _load(plain: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run one trial, unless an earlier run did; what came of its requests. One that may not be believed is an error."""
    from tare.studies.load import from_plain

    fixed = {"study": "ramp", "repeat": 1, "aa": False, "rehearse": False}
    study = from_plain({**fixed, **plain}, "tare weigh")
    with heard_by(lambda text: None):  # of one trial no interval, and of many the same words each time
        outcome = run_into(study, study_text(study), folder, progress=False, retry_failed=True)
    if outcome.interrupted:
        say(f"{outcome.why}. The same command with `-o {folder.parent.parent}` resumes.")
        raise SystemExit(130)
    with reading(folder) as store:
        (record,) = counted_attempts(store.records())
    load: dict[str, Any] = record.facts.get("outcome", {}).get("load", {"ok": 0})
    no_tokens = record.settings.get("workload.goal_of") == "first_token" and load.get("unstreamed", -1) == load["ok"]
    if no_tokens or not is_usable(record):
        raise TareError(" ".join(map(str, record.reasons)))
    return load
