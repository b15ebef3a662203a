"""What `tare show STORE kernel` shows, each section as a table with its notes, and `tare trace`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tare.base.columns import wrap
from tare.base.text import count_text, duration_text, safe_text, share_text, size_text, time_text
from tare.ext.analysis import grouped
from tare.ext.report import sentences, table
from tare.kernel.model import Cell, Kind, Section
from tare.kernel.nvm.model import Latency, Run
from tare.kernel.nvm.sources import HIGH, LOW, Band, bands, pooled

if TYPE_CHECKING:
    from tare.kernel.nvm.replay import Simulation  # brings the compiler
from typing import Any

FRAMES = 8  # of a stack: the outermost ones say where the request came from


def kernel_text(sections: Iterable[Section], width: int = 80) -> str:
    """All sections, one after another."""
    return "\n\n".join(section_text(section, width) for section in sections)


def section_text(section: Section, width: int) -> str:
    kinds = [column.kind for column in section.columns]
    used = [place for place in range(len(kinds)) if any(row[place] not in (None, "") for row in section.rows)]
    rows = [[cell_text(row[place], kinds[place]) for place in used] for row in section.rows]
    heads = [section.columns[place].title for place in used]
    lines = [*wrap(safe_text(section.title), width), table(rows, heads, width, whole=True)]
    return "\n".join([*lines, *sentences((f"note: {note}" for note in section.notes), width)])


def cell_text(value: Cell, kind: Kind) -> str:
    """One value for people; nothing for what is missing."""
    return "" if value is None else _TEXTS[kind](value)


def number_text(value: float) -> str:
    """`1234567.0` as `1,234,567`, `0.0123` as `0.0123`: whole where it is large, three digits where it is small."""
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:.3g}"


def stack_text(stack: str, most: int = FRAMES) -> str:
    """`a;b;...;z` as `a > b > ... > z`; of a long one its beginning and its end (all of it is in --json)."""
    frames = safe_text(stack).split(";")
    if len(frames) > most:
        frames = [*frames[: most - 3], "...", *frames[-2:]]
    return " > ".join(frames)


_TEXTS: Mapping[Kind, Callable[..., str]] = {
    "text": safe_text,
    "stack": stack_text,
    "count": lambda value: f"{value:,}",
    "number": number_text,
    "share": share_text,
    "ratio": lambda value: f"{value:.3f}",
    "seconds": time_text,
}


UNLIMITED = "unlimited"
# The last two: of the page writes, those that the disk was spared, and those that it got from the buffer later.
_HEADERS = ("policy", "buffer", "latency", "improved", "mean", "p99", "avoided", "destaged")


def simulation_text(found: Sequence[Simulation], width: int = 80) -> str:
    """Each trace with its table; trials of the same settings are taken together."""
    groups = grouped(found, lambda each: each.trace.name)
    return "\n\n".join("\n".join(_group(name, held, width)) for name, held in groups.items())


def _group(name: str, held: Sequence[Simulation], width: int) -> list[str]:
    runs = [pooled(same, name) for same in zip(*(each.runs for each in held), strict=True)]
    lines = wrap(_heading(name, held), width, indent="  ")
    for destage in dict.fromkeys(run.layer.destage.name for run in runs):
        ours = [run for run in runs if run.layer.destage.name == destage]
        lines += [*_assumed(ours[0], held[0], width), table([_row(run) for run in _telling(ours)], _HEADERS, width)]
        lines += _tenant_lines(ours, width)
        lines += sentences((*map(_band_text, bands(ours)), *(f"note: {note}" for note in _notes(ours))), width)
    return lines


def _heading(name: str, held: Sequence[Simulation]) -> str:
    writes = sum(each.trace.writes for each in held)
    pages = sum(each.distinct_pages for each in held)
    trials = f" in {count_text(len(held), 'trial')}" if len(held) > 1 else ""
    span_s = sum(each.trace.duration_s for each in held)
    each_page = f"{count_text(pages, 'page')} of {size_text(held[0].page_bytes)}"
    return f"{safe_text(name)}{trials}: {count_text(writes, 'page write')} of {each_page}, in {duration_text(span_s)}"


def _assumed(run: Run, simulation: Simulation, width: int) -> list[str]:
    layer = run.layer
    tenants = len(simulation.trace.tenants)
    shared = "" if tenants < 2 else f", divided among {tenants} tenants" if simulation.divided else ", shared by all"
    text = (
        f"assumed: disk {time_text(layer.disk_s)}, NVM {time_text(layer.nvm_s)} per page, no queueing{shared}; "
        f"destage {layer.destage.name}: {layer.destage.about}"
    )
    return wrap(text, width, indent="  ")


def _telling(runs: Sequence[Run]) -> list[Run]:
    """Without buffers that are larger than one that already holds every page: they change nothing."""
    shown: list[Run] = []
    whole: set[str] = set()
    for run in runs:
        if run.layer.policy.name not in whole:
            shown.append(run)
        if run.layer.policy.buffers and run.disk_writes == 0:
            whole.add(run.layer.policy.name)
    return shown


def _row(run: Run) -> list[str]:
    latency, total = run.latency, run.writes.total
    return [
        run.layer.policy.name,
        buffer_text(run),
        time_text(latency.total_s),
        _percent(latency.improvement),
        time_text(latency.total_s / total) if total else "",
        time_text(p99_s) if (p99_s := latency.percentile_s(0.99)) is not None else "",
        _percent((total - run.disk_writes) / total) if total else "",
        _percent(run.destaged / total) if total else "",
    ]


def buffer_text(run: Run) -> str:
    """The size of a run's buffer, in words."""
    if not run.layer.policy.buffers:
        return "none"
    size_bytes = run.layer.nvm_bytes
    if size_bytes is None:
        return UNLIMITED
    is_decimal = size_bytes % 1_000_000 == 0 and size_bytes % 2**20  # as it was asked for: 64MB are not 61.0 MiB
    return f"{size_bytes // 1_000_000:,} MB" if is_decimal else size_text(size_bytes)


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _tenant_lines(runs: Sequence[Run], width: int) -> list[str]:
    """How far tenants fare differently: shown where there are several, for the largest buffer that is full."""
    full = [run for run in runs if run.layer.policy.buffers and run.disk_writes and len(run.tenants) > 1]
    if not full:
        return []
    run = full[-1]
    rows = [
        [safe_text(name), f"{each.total:,}", _percent(Latency(each, run.layer).improvement)]
        for name, each in run.tenants.items()
    ]
    heading = f"tenants, {run.layer.policy.name} with {buffer_text(run)}:"
    return [*wrap(heading, width), table(rows, ("tenant", "page writes", "improved"), width, indent="  ")]


def _band_text(band: Band) -> str:
    paper = f"the paper's {LOW * 100:.0f} to {HIGH * 100:.0f} %"
    if band.within:
        sizes = [buffer_text(run) for run in (band.within[0], band.within[-1])]
        return f"{band.policy}: {paper} appear with {' to '.join(dict.fromkeys(sizes))}"
    if band.above is None:
        best = band.below
        reached = f": {_reached(best)}" if best is not None else ""
        return f"{band.policy}: {paper} do not appear{reached}; try a larger buffer"
    if band.below is None:
        return f"{band.policy}: more than {paper} already with the smallest buffer, {_reached(band.above)}"
    return f"{band.policy}: {paper} lie between {_reached(band.below)} and {_reached(band.above)}"


def _reached(run: Run) -> str:
    return f"{buffer_text(run)} ({_percent(run.latency.improvement)})"


def _notes(runs: Sequence[Run]) -> list[str]:
    notes = []
    busy = [run for run in runs if run.layer.policy.buffers and (run.disk_busy or 0.0) > 1]
    if busy and not runs[0].layer.destage.waits:
        worst = max(busy, key=lambda run: run.disk_busy or 0.0)
        notes.append(
            f"the disk would have to write for {share_text(worst.disk_busy or 0.0)} of the trace's time "
            f"({worst.layer.policy.name}, {buffer_text(worst)}): it could not keep up, and this is a bound only"
        )
    if any(run.left for run in runs):
        notes.append("pages that are in the buffer at the end are not written to the disk, and not counted as such")
    return notes


Said = Mapping[str, Any]


def tegrastats_table(lines: Sequence[tuple[int, Said]], width: int = 80) -> str:
    """The figures of each line, with its number in the log."""
    columns = {head: [cell(said) for _, said in lines] for head, cell in _COLUMNS.items()}
    shown = {head: cells for head, cells in columns.items() if any(cells)}
    rows = [[number, *(cells[place] for cells in shown.values())] for place, (number, _) in enumerate(lines)]
    return table(rows, ["line", *shown], width)


def _size(name: str) -> Callable[[Said], str]:
    return lambda said: size_text(said[name]) if said.get(name) else ""


def _cores(said: Said) -> str:
    on = [core for core in said.get("cpus", ()) if core is not None]
    return f"{len(on)} of {len(said['cpus'])}" if said.get("cpus") else ""


def _cpu(said: Said) -> str:
    on = [core["util"] for core in said.get("cpus", ()) if core is not None]
    return f"{sum(on) / len(on):.0%}" if on else ""


def _share(name: str) -> Callable[[Said], str]:
    return lambda said: f"{said[name]:.0%}" if name in said else ""


def _hottest(said: Said) -> str:
    """The PMIC's sensor says 100 on every board that has one, whatever it is like there."""
    real = {name: value for name, value in said.get("temps_c", {}).items() if name.upper() != "PMIC"}
    name = max(real, key=lambda each: real[each], default=None)
    return "" if name is None else f"{name} {real[name]:.0f} °C"


_COLUMNS: Mapping[str, Callable[[Said], str]] = {
    "RAM": _size("ram_used_bytes"),
    "swap": _size("swap_used_bytes"),
    "cores": _cores,
    "CPU": _cpu,
    "GPU": _share("gpu_util"),
    "clock": lambda said: f"{said['gpu_hz'] / 1e6:.0f} MHz" if "gpu_hz" in said else "",
    "EMC": _share("emc_util"),
    "hottest": _hottest,
    "module": lambda said: f"{said['power_total_w']:.2f} W" if "power_total_w" in said else "",
}
