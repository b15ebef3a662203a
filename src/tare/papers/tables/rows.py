"""Every row of a paper on every machine, by the statistics of `compare`: rows of one figure are one family."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from tare.base.errors import TareError
from tare.ext.analysis import (
    ACCEL,
    ALWAYS_COLD,
    CACHE,
    COLD,
    EMULATED,
    NEVER,
    SOURCES,
    WARM,
    Comparison,
    Record,
    StoreTrials,
    Waterfall,
    collected,
    differences,
    energy_facts,
    grouped,
    is_usable,
    judge,
    largest_floor,
    median_estimate,
    of_a_mini_batch,
    reads,
    request,
    taints,
    waterfall,
)
from tare.ext.analysis import EMULATED_CPU as TCG
from tare.ext.analysis import label_text as text
from tare.papers.claims.checks import STAND_INS, is_of_mode
from tare.papers.claims.deciding import answers, claims_of
from tare.papers.claims.model import FAILS, HOLDS, NOT_MEASURED, UNDECIDED, Answer, Kind, Word, study_of
from tare.papers.claims.s4 import NO_BOARD
from tare.papers.tables.model import ByClaim, Change, Paper, Row, Scalar
from tare.papers.tables.model import paper as read_paper
from tare.papers.tables.picking import (
    Machine,
    Measured,
    RowSelection,
    cannot_be_run,
    is_number,
    is_set_by_any,
    pick,
    setting,
)

# In what the trials behind a row differ from the paper's, and what to know of its figure: told from the records.
#
# Whether an emulated medium may have been felt: it is a cap, and whoever asks for less reads as if without it.
#
# The kernel counts requests and bytes in slices of a tenth of a second. What fits into a slice passes at once, so that
# a mini-batch of four items hardly feels a disk of 125 requests a second, however long the trial is.

_SLICE_S = 0.1
_SURELY = 0.5  # an item takes a request or two: one for where it lies, one for what is in it
_ITEM_BYTES = 2**20  # no record has the size of an item: where ones of a MiB could be held up, nothing is told
_STEPS = ("epoch0_step_mean_s", "epoch0_step_s")  # the epoch that reads the medium in every state of the page cache


def not_felt(records: Sequence[Record]) -> list[str]:
    """In words, each emulated medium that has probably slowed none of these trials."""
    told = []
    for medium, several in collected(filter(None, map(_medium_asked, records))).items():
        if not any(may_be_felt for _, may_be_felt in several):
            requests = min(requests for requests, _ in several)
            of = f"the {requests:g} requests per second and {int(requests * _SLICE_S)} at once"
            what = f"less than half of {of} that it allows were requested"
            told.append(f"the emulated {medium} probably slowed nothing: {what}")
    return told


def _medium_asked(record: Record) -> tuple[str, tuple[float, bool]] | None:
    """The emulated medium, how many requests it lets pass in a second, and whether the trial may have felt a limit.

    It may, where it asked for half of a limit or more, in a second or at once. None where there is no emulated medium,
    where memory held the data, or where the record does not tell.
    """
    medium, batch = record.settings.get(EMULATED), record.settings.get("workload.batch")
    step_s = next((record.metrics[name] for name in _STEPS if record.metrics.get(name)), None)
    limits = ((record.facts.get("settled") or {}).get("storage") or {}).get("limits")
    requests, read_bytes = (
        limits.get(name) if isinstance(limits, Mapping) else None for name in ("read_iops", "read_bps")
    )
    if reads(record.settings.get(CACHE)) == NEVER or medium is None or batch is None or not step_s or not requests:
        return None
    items = min(float(requests), float(read_bytes) / _ITEM_BYTES if read_bytes else math.inf)
    at_once = batch * max(1, record.settings.get("workload.workers") or 0)
    may_be_felt = batch / step_s >= _SURELY * items or at_once >= _SURELY * items * _SLICE_S
    return str(medium), (float(requests), may_be_felt)


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
        # Of the machine that a trial ran in, how it was run.
        values = [
            (record.facts.get("place") or {}).get("accel") if name == ACCEL else record.settings.get(name)
            for record in records
        ]
        ours = {text(value): value for value in values if value is not None}
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
    return [
        f"{words} in place of power modes"
        for name, words in STAND_INS.items()
        if len({text(value) for record in records if (value := setting(record, name)) is not None}) > 1
    ]


def _sources(records: Sequence[Record], figures: Sequence[str]) -> list[str]:
    """Which sensor a figure comes from, as what the GPU draws is not what the board draws; and what it leaves out."""
    told = [(record.facts.get(SOURCES) or {}).get(name) for name in figures for record in records]
    what = figures[0].partition("_")[0] if figures else ""
    if what in ("energy", "power") and not any(told):
        scopes = [energy_facts(record).get("scope") for record in records]
        told = [f"{what} of {scope}" for scope in scopes if scope]
    return [words for words in told if words]


def _word(name: str, value: Any) -> str:
    known = _WORDS.get(name)
    return known(value) if known is not None else f"{name.rpartition('.')[2]} {text(value)}"


def _same(ours: Any, theirs: Scalar) -> bool:
    """Whether it is what the paper had; nothing is the same as what the library or the data have."""
    if is_number(ours) and is_number(theirs):
        return bool(ours == theirs)
    return theirs is not None and text(ours) == text(theirs)


Key: TypeAlias = tuple[object, ...]
NOT_HERE = "not measured here"
WORDS: Mapping[Word, str] = {
    HOLDS: "holds", FAILS: "does not hold", UNDECIDED: "undecided", NOT_MEASURED: NOT_HERE,
}  # fmt: skip


@dataclass(frozen=True)
class Ours:
    """One row on one machine: two sides and their change, one value, a claim's word, or why there is nothing."""

    word: str | None = None  # of a claim, or that it is not measured here
    metric: str = ""
    sides: Mapping[str, float] = field(default_factory=dict)  # medians, in base units
    change: float | None = None  # a share: 0.016 is +1.6 %
    low: float | None = None  # of the change; where there is none, of the one value
    high: float | None = None
    mini_batch: tuple[float, ...] = ()  # where the sides are of a whole epoch: those of one mini-batch, in their order
    zeros: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # side -> trials with nothing, of how many
    n: int = 0  # blocks that hold both sides, or trials
    paired: bool = False
    verdict: str | None = None  # as `compare` says it
    margin: float | None = None
    mde: float | None = None  # the smallest effect that such a run sees with 80 % power
    why: str = ""
    taints: tuple[str, ...] = ()  # what else differs between the sides, and could explain a difference
    conditions: tuple[str, ...] = ()  # in what the trials differ from the paper's
    remarks: tuple[str, ...] = ()  # what else to know of the figure: its sensor, a medium that was not felt, the scale
    elsewhere: tuple[float, ...] = ()  # change, or value, in other configurations that the row could mean as well
    without_ratio: int = 0  # further ones, whose sides have trials with nothing
    as_decrease: bool = False  # the paper tells the change as (old - new) / new
    where: str = ""  # the population that a claim's word is of, where there are several
    kind: Kind = "change"  # of a claim: what its figure is
    also: tuple[Ours, ...] = ()  # the claim's words on the others
    store: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Answered:
    """A paper's table and claims on every machine."""

    paper: Paper
    machines: tuple[Machine, ...]
    rows: Mapping[str, Mapping[str, Ours]]  # row -> machine -> ours
    claims: Mapping[str, tuple[Answer, ...]]  # machine -> answers


def studies_of(paper: Paper) -> dict[str, set[str]]:
    """The studies that the rows and the claims of a paper rest on, each with the figures that the rows ask for."""
    found: dict[str, set[str]] = {claim.study: set() for claim in claims_of(paper.paper)}
    for one in (one for row in paper.rows for one in row.ours if not isinstance(one, ByClaim)):
        beside = filter(None, map(of_a_mini_batch, one.figures))
        found.setdefault(one.study, set()).update(one.figures, beside)
    return found


def studies_read(paper: Paper) -> dict[str, set[str]]:
    """The same with those of the papers that share a claim with it: on them the claim is judged here too."""
    found: dict[str, set[str]] = {}
    for each in _sharing(paper, [name for claim in claims_of(paper.paper) for name in claim.papers]):
        for study, figures in studies_of(each).items():
            found.setdefault(study, set()).update(figures)
    return found


def _sharing(paper: Paper, names: Iterable[str]) -> list[Paper]:
    """The paper itself, and the others of these."""
    own = paper.paper.lower()
    return [paper, *(read_paper(name) for name in dict.fromkeys(names) if name != own)]


def answered(paper: Paper, machines: Sequence[Machine]) -> Answered:
    """All rows and all claims, machine by machine."""
    claims = {each.name: _claims(paper, each) for each in machines}
    columns = {each.name: _column(paper, each, claims[each.name]) for each in machines}
    rows = {row.id: {name: column[row.id] for name, column in columns.items()} for row in paper.rows}
    return Answered(paper, tuple(machines), rows, claims)


def _claims(paper: Paper, machine: Machine) -> tuple[Answer, ...]:
    """A claim that papers share is judged on the stores of all of them, so that it reads the same on every page."""
    found: list[Answer] = []
    for papers, claims in grouped(claims_of(paper.paper), lambda claim: claim.papers).items():
        ours = {study for each in _sharing(paper, papers) for study in studies_of(each)}
        found += answers(claims, [held for held in machine.held if held.study_name in ours])
    return tuple(_or_refused(answer, machine) for answer in found)


def _or_refused(answer: Answer, machine: Machine) -> Answer:
    """What was not measured since the machine refused the claim's study has that as its reason."""
    study = study_of(answer.study)
    if answer.word != NOT_MEASURED or machine.of(study) or study not in machine.not_run:
        return answer
    return replace(answer, why=f"{cannot_be_run(study, machine.not_run[study])}.")


def _column(paper: Paper, machine: Machine, claims: Sequence[Answer]) -> dict[str, Ours]:
    found = {row.id: (row, _found(row, machine, claims)) for row in paper.rows}
    judged = _judged(each for _, several in found.values() if isinstance(several, list) for each in several)
    return {
        name: several if isinstance(several, Ours) else _ours(several, judged, paper, row)
        for name, (row, several) in found.items()
    }


def _found(row: Row, machine: Machine, claims: Sequence[Answer]) -> list[RowSelection] | Ours:
    """What the row compares here, or what there is to say at once."""
    if row.why_not is not None:
        return Ours(word=NOT_HERE, why=row.why_not)
    if row.on_board and not machine.is_board:
        return Ours(word=NOT_HERE, why=NO_BOARD)
    whys: dict[tuple[bool, bool], str] = {}  # whether the study was run, and varied what is asked -> the first reason
    for question in row.ours:
        if isinstance(question, ByClaim):
            return _of_claim(question, claims, machine)
        found = pick(question, machine)
        if not isinstance(found, str):
            return [replace(each, about=_meant(each, question, row)) for each in found]
        whys.setdefault((bool(machine.of(question.study)), is_set_by_any(question, machine)), found)
    return Ours(word=NOT_HERE, why=whys[max(whys)])


def _meant(picked: RowSelection, question: Measured, row: Row) -> tuple[str, ...]:
    """The settings that the row's words say; what only a second choice has is told with the conditions."""
    first = next(one for one in row.ours if not isinstance(one, ByClaim))
    other = {name for name, levels in question.where.items() if first.where.get(name) != levels}
    return tuple(name for name in picked.about if name not in other)


def _of_claim(question: ByClaim, found: Sequence[Answer], machine: Machine) -> Ours:
    """What the first population says, and beside it what the others do; with what the trials of all of them had."""
    mine = [answer for answer in found if answer.id == question.claim]
    first, *others = map(_said, mine)
    trials = {trial for answer in mine for trial in answer.trials}
    had = [(held, [each for each in held.records if each.trial in trials]) for held in machine.held]
    scales = [_scale(held) for held, records in had if records]
    records = [record for _, its in had for record in its]
    return replace(first, also=tuple(others), conditions=behind(records, scales, of_modes=question.of_modes))


def _scale(held: StoreTrials) -> str:
    return str(held.study.get("scale") or FULL)


def _said(answer: Answer) -> Ours:
    return Ours(
        word=WORDS[answer.word],
        change=answer.effect,
        low=answer.low,
        high=answer.high,
        n=answer.n,
        paired=True,
        why=answer.why,
        where=answer.where,
        kind=answer.kind,
    )


def _judged(picked: Iterable[RowSelection]) -> dict[Key, Comparison]:
    """Each comparison once, corrected together with those of the same figure of the same store."""
    compared = (each for each in picked if each.contest is not None)
    families = grouped(compared, lambda each: (each.held.name, each.metric))
    made: dict[Key, Comparison] = {}
    for (_, metric), family in families.items():
        made |= _judged_together(metric, {each.key: each for each in family})
    return made


def _judged_together(metric: str, family: Mapping[Key, RowSelection]) -> dict[Key, Comparison]:
    """A pair of sides counts once, also where another row turns it round."""
    asked = request(next(iter(family.values())).held.study)
    contests = {key: each.contest for key, each in family.items() if each.contest is not None}
    # One cell is run twice: what it shows of the noise holds for all.
    known = largest_floor(each.noise for each in contests.values())
    once: dict[frozenset[object], Key] = {}
    for key, each in family.items():
        once.setdefault(each.pair, key)
    made: dict[Key, Comparison] = {}
    for key, each in family.items():
        if key not in made:
            members = [key if first == once[each.pair] else first for first in once.values()]
            told = [contests[member].with_noise(known) for member in members]
            found = judge(told, margin=asked.margin, metric=metric, alpha=asked.alpha, resamples=0)
            made |= {member: one for member, one in zip(members, found, strict=True) if member not in made}
    return made


def _ours(several: Sequence[RowSelection], judged: Mapping[Key, Comparison], paper: Paper, row: Row) -> Ours:
    first = several[0]
    said = conditions(first.records, first.held.study, paper.conditions, first.about)
    said += other_data(first.records, paper.data)
    note = row.ours_note.get(_scale(first.held))  # what the file says of our figure at this scale
    ours = Ours(
        metric=first.metric,
        conditions=tuple(dict.fromkeys((*said, *first.told))),
        remarks=(*remarks(first.records, first.figures), *([] if note is None else [note])),
        zeros=first.zeros,
        store=first.held.name,
        mini_batch=_mini_batch(first),
    )
    if first.contest is None and len(first.values) == 1:
        return _value(ours, several)
    effects = [judged[each.key].effect for each in several[1:] if each.contest is not None]
    ours = replace(
        ours,
        elsewhere=tuple(effect for effect in effects if effect is not None),
        without_ratio=len(several) - 1 - len(effects),
        as_decrease=row.as_decrease,
    )
    if first.contest is not None:
        return _change(ours, first, judged[first.key])
    # Two sides of which one has nothing in some trials.
    medians = {name: median_estimate(side).value for name, side in zip(first.names, first.values, strict=True)}
    return replace(ours, sides=medians, n=min(map(len, first.values)))


def _mini_batch(picked: RowSelection) -> tuple[float, ...]:
    """Of a row in seconds of an epoch: the medians of one mini-batch, side by side; nothing where a trial has none."""
    sides: list[tuple[str, Sequence[Record]]]
    if picked.contest is None:
        sides = [(picked.metric, picked.records)] if len(picked.values) == 1 else []
    elif not picked.by:  # two figures of the same trials
        sides = [(name, picked.records) for name in picked.names]
    else:
        sides = [(picked.metric, side) for side in picked.of_sides(picked.contest)]
    names = [(of_a_mini_batch(metric), records) for metric, records in sides]
    values = [[each.compared[name] for each in records if name in each.compared] for name, records in names if name]
    return tuple(median_estimate(side).value for side in values) if values and all(values) else ()


def _change(ours: Ours, picked: RowSelection, found: Comparison) -> Ours:
    medians = (found.theirs, found.ours)
    return replace(
        ours,
        sides={name: each.value for name, each in zip(picked.names, medians, strict=True) if each is not None},
        change=found.effect,
        low=found.low,
        high=found.high,
        n=found.n,
        paired=found.paired,
        verdict=found.verdict,
        margin=found.margin,
        mde=found.mde,
        taints=_taints(picked),
        remarks=(*ours.remarks, *(note.sentence for note in found.notes if note.code == "compare.block-apart")),
    )


def _value(ours: Ours, several: Sequence[RowSelection]) -> Ours:
    """One value; of the other configurations that have one, theirs."""
    found, *others = (median_estimate(each.values[0]) for each in several)
    sides = {several[0].names[0]: found.value}
    elsewhere = tuple(each.value for each in others)
    return replace(ours, sides=sides, low=found.low, high=found.high, n=found.n, elsewhere=elsewhere)


def _taints(picked: RowSelection) -> tuple[str, ...]:
    """What else differs between the sides, where it could explain a difference."""
    contest = picked.contest
    if contest is None or not picked.by:
        return ()
    theirs, ours = picked.of_sides(contest)
    found = differences(ours, theirs, level=contest.level, against=contest.against, by=picked.by)
    return tuple(taints(found))


PAPER = "S0"
WHOLE = "s0-container-tax"
TAKEN_APART = ("why-layers", "why-total")  # what `tare why` calls its studies; the first that was kept
_COMPUTE = ("compute_s", "inference_s")
_NAMED_BY = ("workload", "workload.model", "workload.argv")  # settings that say what was run


@dataclass(frozen=True)
class Layers:
    """One machine: the whole container with each workload, and one workload's container taken apart."""

    machine: str
    whole: Mapping[str, Ours]  # quantity -> ours
    apart: Waterfall | None
    store: str = ""
    why: str = ""  # there is nothing taken apart
    workload: str = ""  # whose container was taken apart: "torch_train lenet5"

    def as_json(self) -> dict[str, Any]:
        apart = None if self.apart is None else self.apart.as_json()
        whole = {quantity: ours.as_json() for quantity, ours in self.whole.items()}
        return {"whole": whole, "apart": apart, "store": self.store, "why": self.why, "workload": self.workload}


def layers(found: Answered) -> list[Layers]:
    """Every machine, from the rows of the table and from a store of `tare why`."""
    return [_of_machine(found, machine) for machine in found.machines]


def _of_machine(found: Answered, machine: Machine) -> Layers:
    # The rows that are about the compute of a workload, in a container and without.
    rows = [(row, row.ours[0]) for row in found.paper.rows if row.ours and isinstance(row.ours[0], Change)]
    whole = {
        row.quantity: found.rows[row.id][machine.name]
        for row, first in rows
        if first.study == WHOLE and set(first.metric) <= set(_COMPUTE)
    }
    held = next((held for study in TAKEN_APART for held in machine.of(study)), None)
    if held is None:
        return Layers(machine.name, whole, None, why="`tare why` was not run, or its store was not kept")
    try:
        apart = waterfall(held.records, margin=request(held.study).margin)
    except TareError as error:
        return Layers(machine.name, whole, None, held.name, str(error))
    return Layers(machine.name, whole, apart, held.name, workload=_workload(held.records))


def _workload(records: Sequence[Record]) -> str:
    """`torch_train lenet5`, or the command of the user's own."""
    settings: Mapping[str, Any] = next((record.settings for record in records if is_usable(record)), {})
    said = [settings[name] for name in _NAMED_BY if settings.get(name) is not None]
    return " ".join(" ".join(map(str, each)) if isinstance(each, list | tuple) else text(each) for each in said)
