"""In what the trials behind a row differ from the paper's, and what to know of its figure: told from the records.

Whether an emulated medium may have been felt: it is a cap, and whoever asks for less reads as if without it.

The kernel counts requests and bytes in slices of a tenth of a second. What fits into a slice passes at once, so that a
mini-batch of four items hardly feels a disk of 125 requests a second, however long the trial is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.analysis.baseload import energy_facts
from tare.analysis.cells import ALWAYS_COLD, CACHE, COLD, EMULATED, NEVER, WARM, reads
from tare.analysis.derived import SOURCES
from tare.analysis.labels import text
from tare.analysis.parity import ACCEL
from tare.analysis.parity import EMULATED as TCG
from tare.papers.claims.power_modes import STAND_INS, is_of_mode
from tare.papers.tables.model import Scalar
from tare.papers.tables.picking import setting
from tare.records.model import Record
from tare.records.trials import grouped

_SLICE_S = 0.1
_SURELY = 0.5  # an item takes a request or two: one for where it lies, one for what is in it
_ITEM_BYTES = 2**20  # no record has the size of an item: where ones of a MiB could be held up, nothing is told
_STEPS = ("epoch0_step_mean_s", "epoch0_step_s")  # the epoch that reads the medium in every state of the page cache


@dataclass(frozen=True)
class _Asked:
    """What one trial asked of its medium, in items, and what that lets pass in a second."""

    medium: str
    requests: float
    read_bytes: float | None  # None: no limit on bytes
    a_second: float
    at_once: float

    @property
    def may_be_felt(self) -> bool:
        """Whether it asked for half of either limit or more, at a time or at once."""
        by_bytes = [] if self.read_bytes is None else [self.read_bytes / _ITEM_BYTES]
        passes = _SURELY * min([self.requests, *by_bytes])
        return self.a_second >= passes or self.at_once >= passes * _SLICE_S


def not_felt(records: Sequence[Record]) -> list[str]:
    """In words, each emulated medium that has probably slowed none of these trials."""
    by_medium = grouped(filter(None, map(_asked, records)), lambda asked: asked.medium)
    return [
        _words(medium, min(each.requests for each in several))
        for medium, several in by_medium.items()
        if not any(each.may_be_felt for each in several)
    ]


def _asked(record: Record) -> _Asked | None:
    """None where there is no emulated medium, where memory held the data, or where the record does not tell."""
    medium, batch = record.settings.get(EMULATED), record.settings.get("workload.batch")
    step_s = next((record.metrics[name] for name in _STEPS if record.metrics.get(name)), None)
    requests = _limit(record, "read_iops")
    if reads(record.settings.get(CACHE)) == NEVER:
        return None
    if medium is None or batch is None or step_s is None or requests is None:
        return None
    workers = record.settings.get("workload.workers") or 0
    return _Asked(str(medium), requests, _limit(record, "read_bps"), batch / step_s, batch * max(1, workers))


def _limit(record: Record, name: str) -> float | None:
    """A limit of the medium, in a second, as the trial had it."""
    settled = record.facts.get("settled") or {}
    limits = (settled.get("storage") or {}).get("limits")
    found = limits.get(name) if isinstance(limits, Mapping) else None
    return float(found) if found else None


def _words(medium: str, requests: float) -> str:
    of = f"the {requests:g} requests per second and {int(requests * _SLICE_S)} at once"
    return f"the emulated {medium} probably slowed nothing: less than half of {of} that it allows were requested"


_DEVICE, _MODEL, _DATA = "workload.device", "workload.model", "workload.data"
FULL = "full"  # the scale that is as in the paper
_CACHE: Mapping[str, str] = {
    COLD: "page cache emptied before the trial",
    ALWAYS_COLD: "page cache emptied before every epoch",
    WARM: "data in the page cache from the start",
}
_NAMED: Mapping[str, tuple[str, str]] = {  # setting -> what one of them is called, and several
    "workload.model": ("model", "models"), "workload.name": ("application", "applications"),
    "platform": ("platform", "platforms"),
}  # fmt: skip


def _count(one: str, many: str) -> Callable[[Any], str]:
    return lambda value: f"{text(value)} {one if value == 1 else many}"


def _size(words: str) -> Callable[[Any], str]:
    return lambda value: words.format(f"{value / 2**20:g} MiB")


_WORDS: Mapping[str, Callable[[Any], str]] = {
    _DEVICE: lambda value: {"cpu": "on the CPU", "cuda": "on a GPU"}.get(text(value), f"on {text(value)}"),
    "workload.threads": _count("thread", "threads"),
    "workload.pixels": _count("pixel", "pixels"),
    "workload.items": _count("item", "items"),
    "workload.requests": _count("request", "requests"),
    "workload.epochs": _count("epoch", "epochs"),
    "workload.steps_per_epoch": _count("mini-batch per epoch", "mini-batches per epoch"),
    "workload.workers": _count("worker", "workers"),
    "tenants": _count("tenant", "tenants"),
    "workload.scale": lambda value: f"networks at {text(value)} of their size",
    EMULATED: lambda value: f"emulated {text(value)}",
    CACHE: lambda value: _CACHE.get(text(value), f"page cache {text(value)}"),
    "control.dirty.background_bytes": _size("background write-back from {} of dirty pages on"),
    "control.dirty.bytes": _size("writers held up at {} of dirty pages"),
    "control.dirty.expire": lambda value: f"dirty pages expire after {text(value)} s",
    "control.dirty.writeback": lambda value: f"flusher every {text(value)} s",
    ACCEL: lambda value: "emulated machine (TCG)" if value == TCG else f"accelerated by {text(value)}",
}


def conditions(
    records: Sequence[Record],
    study: Mapping[str, Any],
    paper: Mapping[str, Sequence[Scalar]],
    without: Sequence[str] = (),
) -> tuple[str, ...]:
    """What differs, in short words; `without` names the settings that the row itself is about."""
    scale = study.get("scale") or FULL
    said = [] if scale == FULL else [f"scale {scale}"]
    for name, theirs in paper.items():
        if name in without:
            continue
        ours = {text(value): value for record in records if (value := _value(record, name)) is not None}
        said += [_word(name, value) for value in ours.values() if not any(_same(value, each) for each in theirs)]
    return tuple(dict.fromkeys(said))


def other_data(records: Sequence[Record], theirs: Mapping[str, str]) -> tuple[str, ...]:
    """`data cifar10`, where the paper trained this model with others."""
    pairs = [(record.settings.get(_MODEL), record.settings.get(_DATA)) for record in records]
    other = [data for model, data in pairs if data is not None and theirs.get(text(model), text(data)) != text(data)]
    return tuple(dict.fromkeys(_word(_DATA, data) for data in other))


def remarks(records: Sequence[Record], figures: Sequence[str]) -> tuple[str, ...]:
    """What to know of the figures themselves: whether a medium was felt at all, and which sensor told them."""
    return tuple(dict.fromkeys([*not_felt(records), *_sources(records, figures)]))


def behind(records: Sequence[Record], scales: Sequence[str], *, of_modes: bool = False) -> tuple[str, ...]:
    """Of a claim: the scales of the studies that its trials are of, on what these ran, which models and platforms.

    Of one about power modes, also what stands in for them.
    """
    said = [f"scale {scale}" for scale in dict.fromkeys(scales) if scale != FULL]
    devices = dict.fromkeys(text(value) for record in records if (value := record.settings.get(_DEVICE)) is not None)
    said += [_word(_DEVICE, value) for value in devices]
    for name, words in _NAMED.items():
        found = dict.fromkeys(text(value) for record in records if (value := record.settings.get(name)) is not None)
        said += [f"{words[len(found) > 1]} {' and '.join(found)}"] if found else []
    return (*said, *(_in_place_of_modes(records) if of_modes else ()))


def _in_place_of_modes(records: Sequence[Record]) -> list[str]:
    """`shares of the CPU's time in place of power modes`, where these vary and no mode was set."""
    if any(is_of_mode(name) and value is not None for record in records for name, value in record.settings.items()):
        return []
    return [f"{words} in place of power modes" for name, words in STAND_INS.items() if _varies(records, name)]


def _varies(records: Sequence[Record], name: str) -> bool:
    return len({text(value) for record in records if (value := setting(record, name)) is not None}) > 1


def _sources(records: Sequence[Record], figures: Sequence[str]) -> list[str]:
    """Which sensor a figure comes from, as what the GPU draws is not what the board draws; and what it leaves out."""
    told = [(record.facts.get(SOURCES) or {}).get(name) for name in figures for record in records]
    what = figures[0].partition("_")[0] if figures else ""
    if what in ("energy", "power") and not any(told):
        scopes = [energy_facts(record).get("scope") for record in records]
        told = [f"{what} of {scope}" for scope in scopes if scope]
    return [words for words in told if words]


def _value(record: Record, name: str) -> Any:
    """A setting; of the machine that a trial ran in, how it was run."""
    if name == ACCEL:
        return (record.facts.get("place") or {}).get("accel")
    return record.settings.get(name)


def _word(name: str, value: Any) -> str:
    known = _WORDS.get(name)
    return known(value) if known is not None else f"{name.rpartition('.')[2]} {text(value)}"


def _same(ours: Any, theirs: Scalar) -> bool:
    """Whether it is what the paper had; nothing is the same as what the library or the data have."""
    if theirs is None:
        return False
    numbers = [each for each in (ours, theirs) if isinstance(each, int | float) and not isinstance(each, bool)]
    return float(ours) == float(theirs) if len(numbers) == 2 else text(ours) == text(theirs)
