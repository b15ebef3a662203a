"""The trial that runs now: what it is made of, its series, the parts of its steps, what it prints, and the device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tare.analysis.labels import distinguishing, make_labels
from tare.base import untrusted
from tare.base.declare import STEP, Role, before
from tare.base.sides import is_rehearsal
from tare.base.text import (
    metric_name,
    printed_text,
    quantity_text,
    quantity_texts,
    safe_text,
    scaled,
    share_text,
    unit_of,
)
from tare.base.units import METER_W
from tare.records.intervals import intervals
from tare.records.schema import SPOOL_FOLDER
from tare.records.seal import read_draft
from tare.records.sealed import folder_name
from tare.records.store import Store
from tare.report.layout import drawn_channels, metric_of, per_second, thinned
from tare.report.text.trials import SHORT_ID, plain_text
from tare_inside.marks import HEADER_BYTES, MAGIC, names_in

if TYPE_CHECKING:
    import numpy.typing as npt

    Series = Mapping[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]
    Marks = Mapping[str, npt.NDArray[Any]]

Json: TypeAlias = Any
POINTS = 240
WINDOW_S = 120.0
_STEP_PARTS = ("fetch", "copy", "compute", "pre_process", "post_process")  # marks that add up, with the rest
_STEPS = 200  # the newest, whose parts are shown
_MARKS = 50_000  # the newest: a look at millions of them would take longer than the time between two looks
OUTPUT_FILE = "output.txt"  # in the workdir: `trial/tenants.py` writes it
_TAIL_BYTES = 1 << 16
_LINES = 5  # of what the workload printed
_NAMED = 6  # of the fields of one part


def live_series(readings: Series, channels: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each group of channels that has data: title, unit, and points (seconds ago, value)."""
    newest_ns = max((int(times[-1]) for times, _ in readings.values() if len(times)), default=0)
    found = []
    for channel in drawn_channels([[each for each in channels if each["name"] in readings]]):
        times, values = readings[channel.name]
        if channel.kind == "counter":
            times, values = per_second(times, values)
        if not len(values):
            continue
        unit, factor = scaled(metric_of(channel), [float(abs(each)) for each in (values.min(), values.max())])
        if points := _series_points(times, values * factor, newest_ns):
            unit = unit or safe_text(channel.words)
            found.append({"title": safe_text(channel.group), "unit": unit, "points": points})
    return found


def _series_points(times: npt.NDArray[Any], values: npt.NDArray[Any], newest_ns: int) -> list[list[float]]:
    import numpy as np

    ago = (times - newest_ns) / 1e9
    recent = ago >= -WINDOW_S
    ago, values = thinned(ago[recent], values[recent], POINTS)
    return [[round(float(t), 2), float(f"{v:.4g}")] for t, v in zip(ago, values, strict=True) if np.isfinite(v)]


def live_marks(marks_file: Path) -> Marks:
    """The marks of a workload that runs: they lie in a file that can be read meanwhile, at no cost to it."""
    import numpy as np

    record = np.dtype([("t_ns", "<i8"), ("step", "<i4"), ("name", "<u2"), ("edge", "u1"), ("pad", "u1")])
    try:
        data = untrusted.read(marks_file.parent, marks_file.name, untrusted.MOST_MARKS_BYTES) or b""
    except (OSError, untrusted.Refused):
        data = b""  # not yet, or gone already
    names = names_in(data) if data.startswith(MAGIC) else {}
    whole = len(data) - (len(data) - HEADER_BYTES) % record.itemsize
    rows = np.frombuffer(data[HEADER_BYTES:whole] if names else b"", dtype=record)
    rows = rows[rows["t_ns"] > 0]
    if len(rows) > _MARKS:
        rows = rows[rows["t_ns"] >= np.partition(rows["t_ns"], -_MARKS)[-_MARKS]]
    rows = rows[np.argsort(rows["t_ns"], kind="stable")]
    edges = np.array(["begin", "end", "point"], object)
    return {
        "t_ns": rows["t_ns"],
        "name": np.array([names.get(number, "") for number in range(len(names) + 1)], object)[
            np.where(rows["name"] <= len(names), rows["name"], 0)
        ],
        "edge": edges[np.minimum(rows["edge"], 2)],
        "step": rows["step"],
    }


def step_series(marks: Marks, unit: str = STEP) -> list[dict[str, Any]]:
    """Step times of a workload that runs."""
    steps = intervals(marks, "step")
    if len(steps) < 2:
        return []
    points = _series_points(steps.end_ns, steps.seconds * 1e3, int(steps.end_ns[-1]))
    return [{"title": f"{unit.capitalize()} time", "unit": "ms", "points": points}]


def step_parts(marks: Marks, unit: str = STEP) -> list[dict[str, Any]]:
    """What the newest steps were made of: means, which add up to the mean step; none where no part is marked."""
    import numpy as np

    found = intervals(marks, "step", *_STEP_PARTS).of_steps()
    steps = found.named("step")
    newest = np.unique(steps.step)[-_STEPS:]
    if not len(newest) or len(found.names) < 2:
        return []
    held = found.where(np.isin(found.step, newest))
    means = {name: float(held.named(name).seconds.sum()) / len(newest) for name in ("step", *_STEP_PARTS)}
    whole = means.pop("step")
    shown = [(metric_name(before().marks[name]), value) for name, value in means.items() if value > 0]
    shown.append((f"the rest of the {unit}", max(0.0, whole - sum(value for _, value in shown))))
    texts = quantity_texts(Role.STEP_MEDIAN.metric, [value for _, value in shown])
    return [
        {"part": part, "time": text, "share": share_text(value / whole) if whole > 0 else "0 %"}
        for (part, value), text in zip(shown, texts, strict=True)
    ]


def trial_parts(settings: Mapping[str, Json], first: Sequence[str] = ()) -> list[dict[str, str]]:
    """The parts that a trial is made of, a row each: platform, workload, controls, probes; of fields those that differ
    between trials come `first`, and those that are not set are left out."""
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys([*(name for name in settings if "." not in name), *first, *settings]):
        kind, _, field = name.partition(".")
        value = settings.get(name)
        if value is not None and value is not False:
            words = f"{safe_text(field).replace('_', ' ')} {plain_text(value)}" if field else plain_text(value)
            found.setdefault(safe_text(kind), []).append(words)
    return [
        {"kind": kind, "what": ", ".join([*held[:_NAMED], *(["..."] if len(held) > _NAMED else [])])}
        for kind, held in found.items()
    ]


def running_trial(store: Store, trial: str) -> Json:
    """Everything about the trial that runs now, for the page and the terminal."""
    plans = {str(row.get("trial")): row for row in store.planned()}
    attempt = max((number for name, number in store.spooled() if name == trial), default=1)
    draft = read_draft(store.root / SPOOL_FOLDER / folder_name(trial, attempt), (trial, attempt))
    settings = plans.get(trial, {}).get("settings") or (draft.settings if draft is not None else {})
    several = [row["settings"] for row in plans.values() if row.get("settings")]
    names = distinguishing(several) or list(settings)[:3]
    label = safe_text(make_labels(several, names).words(settings))
    workdir = draft.facts.get("desk") if draft is not None else None
    marks = live_marks(Path(workdir) / "marks.bin") if isinstance(workdir, str) else None
    readings, unit = store.readings(trial, attempt), unit_of([settings.get("workload")])
    steps = step_series(marks, unit) if marks is not None else []
    return {
        "trial": safe_text(trial)[:SHORT_ID],
        "label": f"rehearsal of {label}" if is_rehearsal(trial) else label,
        "block": plans.get(trial, {}).get("block"),
        "parts": trial_parts(settings, names),
        "unit": unit,
        "step_parts": step_parts(marks, unit) if marks is not None else [],
        "series": [*steps, *live_series(readings, store.channels(trial, attempt, quantiles=False))],
        "sensors": sensor_texts(readings),
        "output": _last_lines(Path(workdir) / OUTPUT_FILE) if isinstance(workdir, str) else [],
    }


def _last_lines(file: Path) -> list[str]:
    """The last lines that the workload printed; none where nothing came yet, or it has ended."""
    text = untrusted.tail(file.parent, file.name, _TAIL_BYTES).decode("utf-8", "replace")
    shown = [printed_text(line) for line in text.replace("\r", "\n").splitlines()]
    return [safe_text(line) for line in shown if line.strip()][-_LINES:]


# The device: what the trial's own probes report comes first, since it costs nothing more; then the machine.
CLOCKS, TEMPERATURE, POWER, RESTORED = "clocks", "temperature", "power", "restored"
_UNKNOWN = {
    CLOCKS: "none reported, neither by this machine nor by a probe (frequency, gpu)",
    TEMPERATURE: "none reported, neither by this machine nor by a probe (temperature, gpu)",
    POWER: "none reported: it takes one of the probes gpu, power_rapl, power_rails, external",
    RESTORED: "not known: the undo journal of this machine could not be read",
}  # fmt: skip


def sensor_texts(readings: Series) -> dict[str, str]:
    """Clocks, temperature and power as the probes of a trial last reported them; what none reports is absent."""
    newest = {name: float(values[-1]) for name, (_, values) in readings.items() if len(values)}
    clocks = {
        name: value for name, value in newest.items() if name.endswith(("_hz", ".freq_hz")) and "memory" not in name
    }
    degrees = {name: value for name, value in newest.items() if name.endswith("_c")}
    watts = [name for name in (METER_W, "power_rails.total_w") if name in newest]
    cards = [name for name in newest if name.startswith("gpu") and name.endswith(".power_w")]
    found = {CLOCKS: clock_text(clocks), TEMPERATURE: temperature_text(degrees)}
    if watts or cards:
        found[POWER] = ", ".join(
            [
                *(f"{_source(name)} {newest[name]:.1f} W" for name in watts[:1]),
                *(f"{_source(name)} {newest[name]:.0f} W" for name in cards),
            ]
        )
    elif "power_rapl.total_j" in readings and (rate := _rate(*readings["power_rapl.total_j"])) is not None:
        found[POWER] = f"processor and memory {rate:.1f} W"
    return {what: text for what, text in found.items() if text}


def _source(channel: str) -> str:
    name = channel.partition(".")[0]
    return {"external": "at the socket", "power_rails": "module"}.get(name, name.upper() if name == "gpu" else name)


def _rate(times: npt.NDArray[Any], values: npt.NDArray[Any]) -> float | None:
    """How fast a counter rose in the last second or so."""
    recent = times >= times[-1] - 1_500_000_000
    span_s = float(times[-1] - times[recent][0]) / 1e9
    return float(values[-1] - values[recent][0]) / span_s if span_s > 0 else None


def clock_text(clocks_hz: Mapping[str, float]) -> str:
    """`cores 1.20 to 2.40 GHz, gpu 1.98 GHz`: the cores together, whatever else has a clock by its name."""
    cores = [value for name, value in clocks_hz.items() if ".cpu" in name or ".core" in name]
    others = {name: value for name, value in clocks_hz.items() if not (".cpu" in name or ".core" in name)}
    shown = []
    if cores:
        low, high = quantity_text("clock_hz", min(cores)), quantity_text("clock_hz", max(cores))
        shown.append(f"cores {low}" if low == high else f"cores {low} to {high}")
    shown += [f"{_clock_name(name)} {quantity_text('clock_hz', value)}" for name, value in others.items()]
    return safe_text(", ".join(shown))


def _clock_name(channel: str) -> str:
    return channel.removesuffix("_hz").removesuffix(".clock").removesuffix("_clock").replace("frequency.", "")


def temperature_text(degrees_c: Mapping[str, float]) -> str:
    """`61 °C (cpu_thermal, the hottest of 7)`."""
    if not degrees_c:
        return ""
    hottest = max(degrees_c, key=lambda name: degrees_c[name])
    name = hottest.removesuffix("_c").removesuffix(".temperature").removeprefix("temperature.")
    many = f", the hottest of {len(degrees_c)}" if len(degrees_c) > 1 else ""
    return safe_text(f"{degrees_c[hottest]:.0f} °C ({name}{many})")


def device_rows(machine: Mapping[str, Json], sensors: Mapping[str, str]) -> list[dict[str, str]]:
    """Four rows, each with something in it: what was not reported says so."""
    told = {**{what: str(machine.get(what) or "") for what in _UNKNOWN}, **sensors}
    return [{"what": what, "now": safe_text(told[what] or unknown)} for what, unknown in _UNKNOWN.items()]
