"""A row of a paper's table in one line: what the paper printed, what was found here, and what the trials had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from string import ascii_lowercase

from tare.analysis.papers.machines import Machine
from tare.analysis.papers.model import Row
from tare.analysis.papers.rows import NOT_HERE, Answered, Ours
from tare.report.words import (
    count_text,
    effect_text,
    interval_text,
    metric_name,
    quantity_texts,
    safe_text,
    share_text,
    size_text,
)

TOO_FEW = "too few for an interval"
Marks = Mapping[tuple[str, ...], str]  # conditions -> the letter that stands for them


def printed_text(row: Row) -> str:
    """`bare 3.91 ms, container 6.01 ms: +53.7 %`, with what is wrong with it."""
    return f"{plainly_printed(row)} ({row.hazard})" if row.hazard else plainly_printed(row)


def plainly_printed(row: Row) -> str:
    """The same, as the paper has it."""
    sides = ", ".join(f"{name} {value}" for name, value in row.paper.sides.items())
    return ": ".join(part for part in (sides, row.paper.change) if part)


def ours_text(ours: Ours, marks: Marks) -> str:
    """`bare 1.20 ms, docker 1.22 ms: +1.6 % [+0.4, +2.9], 6 blocks (a)`, or why there is nothing."""
    if ours.word == NOT_HERE:
        return not_here(ours.why)
    said = "; ".join(map(_worded, (ours, *ours.also))) if ours.word is not None else _figures(ours)
    mark = marks.get(ours.conditions, "")
    return safe_text(f"{said} ({mark})" if mark else said)


def not_here(why: str) -> str:
    """`not measured here: only one model was trained`."""
    return safe_text(f"{NOT_HERE}: {reason_text(why)}")


def reason_text(why: str) -> str:
    """`only one model was trained`: a sentence that goes on where another began."""
    goes_on = f"{why[:1].lower()}{why[1:]}" if why[1:2].islower() else why
    return safe_text(goes_on.rstrip("."))


def _worded(ours: Ours) -> str:
    """`holds (torch 2.13.0): +1.6 % [+0.4, +2.9], 6 blocks`: a claim, and of which population."""
    where = f" ({ours.where})" if ours.where else ""
    return f"{ours.word}{where}: {_change(ours)}"


def _figures(ours: Ours) -> str:
    if len(ours.sides) == 1 and ours.change is None:
        return _value(ours)
    texts = quantity_texts(ours.metric, list(ours.sides.values()))
    sides = ", ".join(f"{_side(name, ours)} {text}" for name, text in zip(ours.sides, texts, strict=True))
    doubts = f"; tainted: {ours.why.rstrip('.')}" if ours.why else ""
    said = _no_ratio(ours) if ours.zeros else f"{_change(ours)}{_verdict(ours)}"
    return f"{sides}: {said}{_elsewhere(ours)}{doubts}"


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
        return f"{quantity_texts(ours.metric, [value])[0]}, {trials}{_other_values(ours)}"
    text, low, high = quantity_texts(ours.metric, [value, ours.low, ours.high])
    return f"{text} [{low.split(' ')[0]}, {high.split(' ')[0]}], {trials}{_other_values(ours)}"


def _without_share(ours: Ours) -> str:
    """` (2 of 6 have none: writeback count is zero)`: there is nothing that it could have a share in."""
    return "".join(
        f" ({none} of {of} have none: {metric_name(whole)} is zero)" for whole, (none, of) in ours.zeros.items()
    )


def _other_values(ours: Ours) -> str:
    if not ours.elsewhere:
        return ""
    ends = dict.fromkeys(quantity_texts(ours.metric, [min(ours.elsewhere), max(ours.elsewhere)]))
    return f"; {' to '.join(ends)} in {count_text(len(ours.elsewhere), 'other configuration')}"


def _change(ours: Ours) -> str:
    if ours.change is None:
        return "no figure"
    blocks = count_text(ours.n, "block" if ours.paired else "trial")
    interval = change_interval(ours)
    return f"{change_text(ours)} {interval}, {blocks}" if interval else f"{change_text(ours)}, {blocks}: {TOO_FEW}"


def decrease(share: float) -> float:
    """A change as S1 tells it: (old - new) / new. A quarter of the old is 3."""
    return 1 / (1 + share) - 1


def _decrease_text(share: float) -> str:
    times = decrease(share)
    return f"{times:.3g}x" if abs(times) < 1000 else f"{times:,.0f}x"


def change_text(ours: Ours) -> str:
    """`+1.6 %`, or `decreases by 3.1x` where the paper says it so; nothing where there is no change."""
    if ours.change is not None and ours.as_decrease:
        return f"decreases by {_decrease_text(ours.change)}"
    return "" if ours.change is None else effect_text(ours.change, (ours.low, ours.high))


def change_interval(ours: Ours) -> str:
    """`[+0.4, +2.9]`; nothing where there are too few blocks for one."""
    if ours.low is None or ours.high is None:
        return ""
    if ours.as_decrease:
        return f"[{_decrease_text(ours.high)}, {_decrease_text(ours.low)}]"
    return interval_text(ours.low, ours.high, [ours.change])


def _verdict(ours: Ours) -> str:
    """What the interval alone does not show at a glance: that nothing changes, or that nothing can be told."""
    if ours.low is None or ours.margin is None:
        return ""
    words = {"equivalent": f", no change within {share_text(ours.margin)}", "cannot_tell": ", cannot tell"}
    return words.get(ours.verdict or "", "")


def _elsewhere(ours: Ours) -> str:
    """The least and the greatest change of other configurations, and how many have none."""
    told = []
    if ours.elsewhere:
        shown = _decrease_text if ours.as_decrease else effect_text
        ends = dict.fromkeys(shown(share) for share in (min(ours.elsewhere), max(ours.elsewhere)))
        told.append(f"; {' to '.join(ends)} in {count_text(len(ours.elsewhere), 'other configuration')}")
    if ours.without_ratio:
        told.append(f"; no ratio in {count_text(ours.without_ratio, 'other configuration')}")
    return "".join(told)


def marks_of(found: Answered) -> Marks:
    """A letter for each set of conditions, in the order in which the table meets them."""
    met: Iterable[Ours] = (ours for row in found.rows.values() for ours in row.values())
    sets = dict.fromkeys(ours.conditions for ours in met if ours.conditions)
    return {each: _letters(place) for place, each in enumerate(sets)}


def _letters(place: int) -> str:
    more, last = divmod(place, len(ascii_lowercase))
    return (ascii_lowercase[more - 1] if more else "") + ascii_lowercase[last]


def marks_texts(marks: Marks) -> list[str]:
    """`a: scale small, on the CPU, 160 items`: in what the trials differ from the paper's."""
    return [f"{letter}: {safe_text(', '.join(said))}" for said, letter in marks.items()]


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
