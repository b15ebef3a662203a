"""`tare weigh --server ... --goal "p99 < 300 ms"`: the highest rate at which a server meets a goal, on each side."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import click

from tare.api.running import run_into, study_text
from tare.base.errors import TareError
from tare.cli.options import need
from tare.cli.scaffold import print_json, reading, say
from tare.cli.studies import with_interpreter
from tare.records.trials import counted_attempts, is_usable

WITHIN = 0.05  # the rate that is found and the lowest one that misses the goal are no further apart
FEWEST_LATE = 10  # requests that may miss the goal: with fewer, chance decides
SLOWEST = 1 / 64  # of the rate of the first look: below it nothing meets the goal
_GOAL = re.compile(r"p(\d{1,2}(?:\.\d+)?) *<=? *(.+)")


@dataclass
class Found:
    """What was found of one side, in requests per second."""

    met: float | None = None  # the highest rate that meets the goal
    missed: float | None = None  # the lowest that does not
    why_no_more: str = ""  # why the search ended before it was as narrow as it should be
    tried: dict[float, float] = field(default_factory=dict)  # rate -> the share of good requests


def ramp_goal(serving: dict[str, Any]) -> float | None:
    """The share of requests that must be good, of a goal like `p99 < 300 ms`; None where the goal is a time alone."""
    found = _GOAL.fullmatch(str(serving.get("goal", "")).strip())
    if found is None:
        return None
    need("rate" not in serving and "trace" not in serving, f"--goal {serving['goal']!r} finds the rate: leave --rate.")
    share = float(found[1]) / 100
    serving["goal"] = found[2]
    serving.setdefault("count", math.ceil(FEWEST_LATE / (1 - share)))
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


def find_rates(
    levels: list[Any], work: dict[str, Any], share: float, folder: Path, python: str | None, repeat: int, as_json: bool
) -> None:
    """Search on each side by itself, and print what each can take."""
    made = {}
    for level in levels:
        side = level if isinstance(level, str) else next(iter(level))
        say(f"{side}: first as many requests as it answers one after the other, then rates that double, then between.")
        server = {"platform": [level], "repeat": repeat, "aa": False, "rehearse": False}

        def loads(name: str, server: dict[str, Any] = server, **load: Any) -> list[dict[str, Any]]:
            return _loads({**server, "workload": {"server": {**work["server"], **load}}}, folder / name, python)

        def share_at(rate: float, loads: Any = loads, side: str = side) -> float:
            counted = loads(f"{side}-{rate:g}", rate=f"{rate}/s")
            return float(sum(each["good"] for each in counted) / sum(each["sent"] for each in counted))

        first = fmean(each["ok"] / each["seconds"] for each in loads(f"{side}-closed"))
        made[side] = search(share_at, float(f"{first:.2g}"), share)
    if as_json:
        print_json({"store": str(folder), "share": share, "sides": {side: asdict(each) for side, each in made.items()}})
        return
    for side, each in made.items():
        click.echo(
            rate_text(side, each, f"{100 * share:g} % of the requests are answered within {work['server']['goal']}")
        )
    if rates := [each.met for each in made.values() if each.met]:
        click.echo(f"`--rate {min(rates):g}/s` weighs both sides at that rate, with a verdict.")


def rate_text(side: str, found: Found, goal: str) -> str:
    """`bare: up to 412/s 99 % of the requests are answered within 300 ms (97.1 % at 431/s)`."""
    told = f"{side}: up to {found.met:g}/s {goal}" if found.met else f"{side}: at no rate {goal}"
    missed = f" ({found.tried[found.missed]:.1%} at {found.missed:g}/s)" if found.missed else ""
    return f"{told}{missed}{f'; {found.why_no_more}' if found.why_no_more else ''}"


def _loads(plain: dict[str, Any], folder: Path, python: str | None) -> list[dict[str, Any]]:
    """Run it; what came of the requests of each trial. One that may not be believed is an error."""
    from tare.studies.load import from_plain

    study = with_interpreter(from_plain({"study": "ramp", **plain}, "tare weigh"), python)
    outcome = run_into(study, study_text(study), folder)
    if outcome.interrupted:
        raise SystemExit(130)
    with reading(folder) as store:
        records = counted_attempts(store.records())
    for record in records:
        if not is_usable(record):
            raise TareError(" ".join(map(str, record.reasons)))
    return [record.facts["outcome"]["load"] for record in records]
