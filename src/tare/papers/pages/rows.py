"""A row of a paper's table in one line: what the paper printed, what was found here, and what the trials had."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tare.analysis.sentences import too_few_for_interval
from tare.base.text import (
    count_text,
    effect_text,
    interval_text,
    metric_name,
    quantity_texts,
    safe_text,
    share_text,
    size_text,
)
from tare.papers.claims.model import BELOW_LEAST, LARGE, figure_words, is_tiny, times
from tare.papers.pages.notes import NO_NOTES, Notes, cell_notes, hazard_notes, not_here, where_text
from tare.papers.tables.machines import Machine
from tare.papers.tables.model import Row
from tare.papers.tables.rows import NOT_HERE, Ours

_HALVED = -0.5
_LESS_WORD = "less"
_IN_TIMES = re.compile(r"\dx( less| faster)?$")  # how a paper ends a change that it tells in times


class Change(NamedTuple):
    """A change and its interval, as shares."""

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class _Way:
    """A change as a number of times, and the words around it."""

    times: Callable[[float], float]
    number: Callable[[float], str]
    words: str = "{}"

    def alone(self, share: float) -> str:
        return self.number(self.times(share))


def decrease(share: float) -> float:
    """A change as S1 tells it: (old - new) / new. A quarter of the old is 3."""
    return 1 / (1 + share) - 1


def _decrease_number(times: float) -> str:
    return f"{times:.3g}x" if abs(times) < 1000 else f"{times:,.0f}x"


_FACTOR = _Way(lambda share: 1 + share, times)
_LESS = _Way(lambda share: 1 / (1 + share), times, "{} less")
_DECREASE = _Way(decrease, _decrease_number, "decreases by {}")
_NO_DECREASE = _Way(lambda share: 1 + share, times, "rises to {}")


def known_change(ours: Ours) -> Change | None:
    """None where there is no change, or too few blocks for its interval."""
    if ours.change is None or ours.low is None or ours.high is None:
        return None
    return Change(ours.change, ours.low, ours.high)


def change_texts(change: Change, printed: str = "", *, as_decrease: bool = False) -> tuple[str, str]:
    """The change and its interval: `+1.6 %` and `[+0.4, +2.9]`, or `6.1x less` and `[5.2x, 7.0x]`.

    `printed` is the change as the paper has it: it decides, beside its size, in what it is told.
    """
    way = _way(change, printed, as_decrease)
    if way is None:
        beside = (change.low, change.high)
        return effect_text(change.share, beside), interval_text(*beside, [change.share])
    ends = sorted(map(way.times, (change.low, change.high)))
    return way.words.format(way.alone(change.share)), f"[{', '.join(map(way.number, ends))}]"


def range_text(shares: Sequence[float], change: Change | None, printed: str = "", *, as_decrease: bool = False) -> str:
    """The least and the greatest of other changes, told in the same way as this one."""
    way = _way(change, printed, as_decrease) if change is not None else None
    shown: Callable[[float], str] = way.alone if way is not None else effect_text
    return " to ".join(dict.fromkeys(shown(share) for share in (min(shares), max(shares))))


def _way(change: Change, printed: str, as_decrease: bool) -> _Way | None:
    """In times where the paper tells it so or it is large; None is in percent."""
    if change.low <= -1:
        return None  # nothing is left: there is no number of times
    if as_decrease:
        return _DECREASE if change.share < 0 else _NO_DECREASE
    in_times, says_less = _IN_TIMES.search(printed) is not None, _LESS_WORD in printed.split()
    halved = change.share < _HALVED
    if change.share < 0 and ((in_times and (says_less or halved)) or (says_less and halved)):
        return _LESS
    return _FACTOR if in_times or change.share >= LARGE else None


def excludes_zero(change: Change) -> bool:
    """Whether the interval, as it is shown, lies on one side of no change."""
    low, high = interval_text(change.low, change.high, [change.share])[1:-1].split(", ")
    return low.startswith("+") or high.startswith("-")


_MINI_BATCH = "mini_batch"
_SHARE = "_share"  # how the name of a share ends


def printed_text(row: Row, notes: Notes = NO_NOTES) -> str:
    """`bare 3.91 ms, container 6.01 ms: +53.7 % (p)`: as the paper has it, and a letter for what is wrong with it."""
    return f"{plainly_printed(row)}{notes.mark(hazard_notes(row))}"


def plainly_printed(row: Row) -> str:
    """The same without the letter."""
    return row.paper.text()


def row_text(row: Row, notes: Notes) -> str:
    """`median power (bare 43.7 W, container 40.8 W) (p)`: a row that nobody has measured, after its number."""
    return f"{row.quantity} ({plainly_printed(row)}){notes.mark(hazard_notes(row))}"


def ours_text(ours: Ours, notes: Notes = NO_NOTES, printed: str = "") -> str:
    """`bare 1.20 ms, docker 1.22 ms: +1.6 % [+0.4, +2.9], 6 blocks (a)`, or why there is nothing.

    `printed` is the change as the paper has it.
    """
    if ours.word == NOT_HERE:
        return not_here(ours.why, notes)
    if ours.word is None:
        said = _figures(ours, printed)
    else:
        said = "; ".join(_worded(each, notes) for each in (ours, *ours.also))
    return safe_text(f"{said}{notes.mark(cell_notes(ours))}")


def _worded(ours: Ours, notes: Notes) -> str:
    """`holds (torch 2.13.0): +1.6 % [+0.4, +2.9], 6 blocks`: a claim, and of which population."""
    return f"{ours.word}{where_text(ours.where, notes)}: {_change(ours)}"


def _counted(ours: Ours) -> str:
    return count_text(ours.n, "block" if ours.paired else "trial")


def _figures(ours: Ours, printed: str) -> str:
    if len(ours.sides) == 1 and ours.change is None:
        return _value(ours)
    texts = _texts(ours.metric, list(ours.sides.values()))
    sides = ", ".join(f"{_side(name, ours)} {text}" for name, text in zip(ours.sides, texts, strict=True))
    tainted = f"; tainted ({count_text(len(ours.taints), 'difference')})" if ours.taints else ""
    said = _no_ratio(ours) if ours.zeros else f"{_change(ours, printed)}{_verdict(ours)}"
    return f"{sides}: {said}{_per_mini_batch(ours)}{_elsewhere(ours, printed)}{tainted}"


def _per_mini_batch(ours: Ours) -> str:
    """`; per mini-batch 125 ms, 24.1 ms`, where the sides are of a whole epoch."""
    told = _texts(f"{_MINI_BATCH}_s", list(ours.mini_batch))
    return f"; per mini-batch {', '.join(told)}" if told else ""


def _side(name: str, ours: Ours) -> str:
    """A level as it is; a figure of the same trials by its name."""
    return metric_name(name) if ours.metric in ours.sides else name


def _no_ratio(ours: Ours) -> str:
    """`no ratio, since it is zero in 4 of 6 trials of 0 workers`."""
    counts = [f"{none} of {count_text(of, 'trial')} of {_side(name, ours)}" for name, (none, of) in ours.zeros.items()]
    return f"no ratio, since it is zero in {' and in '.join(counts)}"


def _value(ours: Ours) -> str:
    (value,) = ours.sides.values()
    trials = count_text(ours.n, "trial") + _without_share(ours)
    if ours.low is None or ours.high is None:
        return f"{_texts(ours.metric, [value])[0]}, {trials}{_per_mini_batch(ours)}{_other_values(ours)}"
    text, low, high = _texts(ours.metric, [value, ours.low, ours.high])
    interval = "" if text == high == BELOW_LEAST else f" [{_number(low)}, {_number(high)}]"
    return f"{text}{interval}, {trials}{_per_mini_batch(ours)}{_other_values(ours)}"


def _texts(metric: str, values: Sequence[float]) -> list[str]:
    """The values of one figure, side by side; of a share that is next to nothing, only that it is."""
    tiny = [metric.endswith(_SHARE) and is_tiny(value) for value in values]
    told = iter(quantity_texts(metric, [value for value, is_less in zip(values, tiny, strict=True) if not is_less]))
    return [BELOW_LEAST if is_less else next(told) for is_less in tiny]


def _number(text: str) -> str:
    """`31.0` of `31.0 %`."""
    return text.rpartition(" ")[0] or text


def _without_share(ours: Ours) -> str:
    """` (2 of 6 have none: writeback count is zero)`: there is nothing that it could have a share in."""
    return "".join(
        f" ({none} of {of} have none: {metric_name(whole)} is zero)" for whole, (none, of) in ours.zeros.items()
    )


def _other_values(ours: Ours) -> str:
    if not ours.elsewhere:
        return ""
    ends = dict.fromkeys(_texts(ours.metric, [min(ours.elsewhere), max(ours.elsewhere)]))
    return f"; {' to '.join(ends)} in {count_text(len(ours.elsewhere), 'other configuration')}"


def _change(ours: Ours, printed: str = "") -> str:
    """A change with its interval, of a claim its figure; without one it could be anything, and is not told."""
    if ours.change is None:
        return "no figure"
    known = known_change(ours)
    if known is None:
        return too_few_for_interval(ours.n, ours.paired)
    if ours.word is not None:
        told = figure_words(ours.kind, *known)
    else:
        told = " ".join(change_texts(known, printed, as_decrease=ours.as_decrease))
    return f"{told}, {_counted(ours)}"


def _verdict(ours: Ours) -> str:
    """What the interval does not show at a glance: that little or nothing changes, or that nothing can be told."""
    known = known_change(ours)
    if known is None or ours.margin is None:
        return ""
    within = "changed by less than" if excludes_zero(known) else "no change within"
    words = {"equivalent": f", {within} {share_text(ours.margin)}", "cannot_tell": ", cannot tell"}
    return words.get(ours.verdict or "", "")


def _elsewhere(ours: Ours, printed: str) -> str:
    """The least and the greatest change of other configurations, and how many have none."""
    told = []
    known = known_change(ours)
    if ours.elsewhere and (known is not None or ours.zeros):
        ends = range_text(ours.elsewhere, known, printed, as_decrease=ours.as_decrease)
        told.append(f"; {ends} in {count_text(len(ours.elsewhere), 'other configuration')}")
    if ours.without_ratio:
        told.append(f"; no ratio in {count_text(ours.without_ratio, 'other configuration')}")
    return "".join(told)


def machine_text(machine: Machine) -> str:
    """`Neoverse-N1, 2 cores, 7.6 GiB, kernel 6.18; Python 3.11.7, torch 2.13.0`."""
    device, software = device_text(machine), software_text(machine)
    return "; ".join(part for part in (device, software) if part) or "refused every study of this paper"


def device_text(machine: Machine) -> str:
    known = dict(machine.device)
    told = [str(known[name]) for name in ("board", "cpu") if name in known]
    told += [count_text(int(known["cores"]), "core")] if "cores" in known else []
    told += [size_text(float(known["memory_bytes"]))] if "memory_bytes" in known else []
    told += [str(known["gpu"])] if "gpu" in known else []
    told += [f"kernel {known['kernel']}"] if "kernel" in known else []
    return safe_text(", ".join(told))


def software_text(machine: Machine) -> str:
    names = {"python.version": "Python", "torch.version": "torch", "torch.cuda": "CUDA"}
    known = machine.software
    return safe_text(", ".join(f"{words} {known[name]}" for name, words in names.items() if name in known))
