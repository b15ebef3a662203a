"""How a trial ended, where it did not simply come to its end: then nobody asks what its numbers mean."""

from __future__ import annotations

from dataclasses import dataclass

from tare.errors import LineLost
from tare.host import Exit
from tare.parts.group import OOM_NOTE
from tare.plan.model import Trial
from tare.records.model import State
from tare.trial.seen import Seen
from tare.trial.sensor_rules import overheated


@dataclass(frozen=True)
class Verdict:
    """How a trial ended, with the reasons in sentences."""

    state: State
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def stopped_for_heat(seen: Seen) -> Verdict | None:
    """C17: the trial was ended so that the device does not harm itself."""
    reasons = overheated(seen.facts)
    return None if reasons is None or seen.interrupted else Verdict("failed", reasons)


def who_died(seen: Seen) -> Verdict | None:
    """A tenant that dies takes the pressure off the others: their figures are not those of the full house."""
    sentences = [
        f"tenant {number} ({lodger.workload.title()}) ended early{_last_words(lodger.exit)}; the others were stopped."
        for number, lodger in enumerate(seen.neighbours, start=1)
        if lodger.died
    ]
    if not sentences or seen.interrupted or seen.error is not None or seen.died:
        return None
    return Verdict("invalid", tuple(sentences))


def _last_words(found: Exit | None) -> str:
    if found is None:
        return ""
    if found.timed_out:
        return " at the limit"
    last = [line for line in found.err.strip().splitlines() if line.strip()][-1:]
    return f" with code {found.code}" + (f": {last[0].strip()[:300]}" if last else "")


def how_it_ended(trial: Trial, seen: Seen) -> Verdict | None:
    """None where the workload came to its end, with code 0."""
    if seen.interrupted:
        return Verdict("interrupted", ("the run was stopped during this trial.",))
    if isinstance(seen.error, LineLost):
        return Verdict("interrupted", (str(seen.error),))
    if seen.error is not None:
        return Verdict("failed", (str(seen.error),))
    if seen.exit is None:
        return Verdict("failed", ("the workload was never started.",))
    if seen.exit.timed_out:
        return Verdict("timeout", (f"no end within the limit; stopped after {seen.exit.seconds:.0f} s.",))
    if OOM_NOTE in seen.exit.err or grew(seen, "cgroup.oom_kills"):
        return Verdict("oom", (f"the kernel ended the workload for want of memory{_limit(trial)}.",))
    if seen.exit.code != 0:
        last = [line for line in seen.exit.err.strip().splitlines() if line.strip()][-1:]
        said = f": {last[0].strip()[:300]}" if last else ""
        hints = tuple(hint for words, hint in _HINTS.items() if words in seen.exit.err and not _is_bare(trial))
        return Verdict("failed", (f"the workload ended with code {seen.exit.code}{said}", *hints))
    return None


_HINTS = {  # what a container does to a program that runs on bare metal
    "Read-only file system": "Inside a container everything is read-only but /tmp, which is memory: write there, or "
    "set `writable: true` of the platform.",
    "No such file or directory": "Inside a container of the device's files only those in the program's folder and on "
    "its command line are there, and of /tmp only files that the command line names: a program in /tmp does not see "
    "what lies beside it. Move it to a folder of its own, or name what it needs in `reads:` of a study.",
    "Bus error": "Data loader workers pass batches through /dev/shm: give the platform a larger `shm:`.",
}


def _is_bare(trial: Trial) -> bool:
    return [platform.part_name() for platform in trial.cell.platforms] == ["bare"]


def _limit(trial: Trial) -> str:
    limits = [platform.fields().get("memory") for platform in trial.cell.platforms]
    return "".join(f" (its limit is {limit / 2**20:.0f} MiB)" for limit in limits if limit)


def grew(seen: Seen, channel: str) -> float:
    """How much a counter grew from its first reading to its last; 0 where there are not two."""
    values = seen.readings.get(channel, [])
    return values[-1] - values[0] if len(values) >= 2 else 0.0
