"""What `tare analyse energy` and `tare device baseload` show: energy of each cell, of differences, and when idle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tare.analysis.baseload import IdlePower
from tare.analysis.model import Estimate
from tare.analysis.resources.energy import SHARE, UNITS, CellEnergy, EnergyDifference, EnergyFindings
from tare.base.text import count_text, effect_text, quantity_text, quantity_texts, safe_text, share_text
from tare.report.columns import table
from tare.report.text.choose import sentences

_COLUMNS = {
    "power": "power_mean_w",
    "energy": "energy_j",
    "baseload": "energy_baseload_j",
    "incremental": "energy_incremental_j",
    "baseload share": SHARE,
}


def energy_text(found: EnergyFindings, width: int = 80) -> str:
    """The whole answer for a terminal of `width` columns."""
    measured = [each for each in found.cells if each.n]
    blocks = [[table(*_rows(measured), width)] if measured else []]
    blocks.append([table(*_per_unit(measured), width)] if any(_units(measured)) else [])
    told = [*map(_cell_sentence, measured), *map(difference_sentence, found.differences)]
    blocks.append(sentences(told, width))
    blocks.append(sentences((line for each in found.cells for line in _missing(each)), width))
    blocks.append([idle_text(found.idle, width)] if found.idle else [])
    blocks.append(sentences((f"note: {note}" for note in found.notes), width))
    return "\n\n".join("\n".join(block) for block in blocks if block)


def idle_text(found: Sequence[IdlePower], width: int = 80) -> str:
    """Idle power by platform and mode, and what logging adds to it."""
    several = len({each.logging for each in found}) > 1
    heads = ["idle device", *(["logging"] if several else []), "power", "95 % interval", "trials"]
    rows = [
        [safe_text(each.label), *(["on" if each.logging else "off"] if several else []),
         *_with_interval("power_mean_w", each.power_w), f"{each.power_w.n:,}"]
        for each in found
    ]  # fmt: skip
    return "\n".join([table(rows, heads, width), *sentences(_logging_sentences(found), width)])


def difference_sentence(each: EnergyDifference) -> str:
    """A sentence: by how much, and because of what; the three parts add up to the whole."""
    more = "more" if each.total.value >= 0 else "less"
    told = (
        f"{each.level} takes {quantity_text('energy_j', abs(each.total.value))} per {each.unit} {more} than "
        f"{each.against} ({effect_text(each.share)}{_between(each.total, ',')})"
    )
    if each.longer is None or each.idle is None or each.work is None:
        return f"{told}; what of it is the idle device's is unknown without its baseload."
    longer = f"it ran {'longer' if each.longer.value >= 0 else 'shorter'}"
    work = f"it did {'more' if each.work.value >= 0 else 'less'} work"
    parts = [(longer, each.longer), ("idle power differs", each.idle), (work, each.work)]
    texts = quantity_texts("energy_j", [part.value for _, part in parts])
    listed = [
        f"{_signed(text, part.value)} because {why}{_between(part)}"
        for text, (why, part) in zip(texts, parts, strict=True)
    ]
    return f"{told}: {'; '.join(listed)}."


def _rows(cells: Sequence[CellEnergy]) -> tuple[list[list[str]], list[str]]:
    """One row a cell, and the heads of the columns that any of them has."""
    heads = [head for head, metric in _COLUMNS.items() if any(metric in each.figures for each in cells)]
    columns = [_column(cells, _COLUMNS[head]) for head in heads]
    rows = [[safe_text(each.label), *row] for each, *row in zip(cells, *columns, strict=True)]
    return [[*row, f"{each.n:,}"] for row, each in zip(rows, cells, strict=True)], ["", *heads, "trials"]


def _per_unit(cells: Sequence[CellEnergy]) -> tuple[list[list[str]], list[str]]:
    units = _units(cells)
    columns = [_column(cells, f"energy_{unit}_j") for unit in units]
    rows = [[safe_text(each.label), *row] for each, *row in zip(cells, *columns, strict=True)]
    return rows, ["joules per", *units]


def _units(cells: Sequence[CellEnergy]) -> list[str]:
    return [unit for unit in UNITS if any(f"energy_{unit}_j" in each.figures for each in cells)]


def _column(cells: Sequence[CellEnergy], metric: str) -> list[str]:
    """The medians of one figure, in one unit; empty where a cell has none."""
    held = [each.figures[metric].value for each in cells if metric in each.figures]
    texts = iter(quantity_texts(metric, held))
    return [next(texts) if metric in each.figures else "" for each in cells]


def _cell_sentence(each: CellEnergy) -> str:
    power, energy = each.figures["power_mean_w"], each.figures["energy_j"]
    told = (
        f"{each.label}: {quantity_text('energy_j', energy.value)}{_range('energy_j', energy)} at "
        f"{quantity_text('power_mean_w', power.value)} for {each.scope}"
    )
    if each.shared_by > 1:
        return f"{told}; {each.shared_by} tenants shared it, and what each of them used is not measured."
    if (share := each.figures.get(SHARE)) is None:
        return f"{told}."
    return f"{told}; {share_text(share.value)} of it is what the idle device would have drawn."


def _missing(each: CellEnergy) -> Iterator[str]:
    if each.without:
        which = (
            "no energy"
            if not each.n
            else f"no energy in {count_text(each.without, 'trial')} of {each.n + each.without}"
        )
        yield f"{each.label}: {which}: {' '.join(map(str, each.doubts))}"


def _logging_sentences(found: Sequence[IdlePower]) -> Iterator[str]:
    quiet = {each.key: each for each in found if not each.logging}
    for each in found:
        base = quiet.get(each.key)
        if each.logging and base is not None:
            own_w, quiet_w = each.power_w.value, base.power_w.value
            told = quantity_text("power_w", own_w - quiet_w)
            yield (
                f"{each.label}: a logging script adds {_signed(told, own_w - quiet_w)} to "
                f"{quantity_text('power_w', quiet_w)} ({effect_text(own_w / quiet_w - 1)})."
            )


def _with_interval(metric: str, found: Estimate) -> list[str]:
    if found.low is None or found.high is None:
        return [quantity_text(metric, found.value), ""]
    value, low, high = quantity_texts(metric, [found.value, found.low, found.high])
    if len({text.rpartition(" ")[2] for text in (value, low, high)}) == 1:
        low, high = (text.rpartition(" ")[0] for text in (low, high))  # in the unit of the value before it
    return [value, f"[{low}, {high}]"]


def _range(metric: str, found: Estimate) -> str:
    return f" {text}" if (text := _with_interval(metric, found)[1]) else ""


def _between(found: Estimate, before: str = "") -> str:
    """` [+1.0 J, +3.1 J]`, or nothing where there are too few trials."""
    if found.low is None or found.high is None:
        return ""
    low, high = quantity_texts("energy_j", [found.low, found.high])
    return f"{before} [{_signed(low, found.low)}, {_signed(high, found.high)}]"


def _signed(text: str, value: float) -> str:
    return f"+{text}" if value > 0 else text
