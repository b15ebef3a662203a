"""Every row of a paper on every machine, by the statistics of `compare`: rows of one figure are one family."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from tare.analysis.compare import judge, largest_floor
from tare.analysis.derived import of_a_mini_batch
from tare.analysis.labels import text
from tare.analysis.model import Comparison
from tare.analysis.parity import differences, taints
from tare.analysis.selection import Request, request
from tare.analysis.statistics import median_estimate
from tare.analysis.why.layers import Waterfall, waterfall
from tare.base.errors import TareError
from tare.papers.claims.deciding import answers, claims_of
from tare.papers.claims.model import FAILS, HOLDS, NOT_MEASURED, UNDECIDED, Answer, Kind, Word, study_of
from tare.papers.tables.conditions import FULL, behind, conditions, other_data, remarks
from tare.papers.tables.machines import Machine, cannot_be_run
from tare.papers.tables.model import ByClaim, Change, Paper, Row
from tare.papers.tables.model import paper as read_paper
from tare.papers.tables.picking import Measured, RowSelection, is_set_by_any, pick
from tare.records.model import Record
from tare.records.trials import StoreTrials, grouped, is_usable

Key: TypeAlias = tuple[object, ...]
NOT_HERE = "not measured here"
NO_BOARD = "it takes an edge board: this device does not report that it is one"
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
        plain = {
            name: list(getattr(self, name)) for name in ("taints", "conditions", "remarks", "elsewhere", "mini_batch")
        }
        return {**asdict(self), **plain, "also": [each.as_json() for each in self.also]}


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
    return replace(first, also=tuple(others), conditions=_behind(machine, trials, of_modes=question.of_modes))


def _behind(machine: Machine, trials: Collection[str], *, of_modes: bool) -> tuple[str, ...]:
    had = [(held, [each for each in held.records if each.trial in trials]) for held in machine.held]
    scales = [_scale(held) for held, records in had if records]
    return behind([record for _, records in had for record in records], scales, of_modes=of_modes)


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
    asked = _asked(next(iter(family.values())))
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


def _asked(picked: RowSelection) -> Request:
    return request(picked.held.study)


def _ours(several: Sequence[RowSelection], judged: Mapping[Key, Comparison], paper: Paper, row: Row) -> Ours:
    first = several[0]
    said = conditions(first.records, first.held.study, paper.conditions, first.about)
    said += other_data(first.records, paper.data)
    ours = Ours(
        metric=first.metric,
        conditions=tuple(dict.fromkeys((*said, *first.told))),
        remarks=(*remarks(first.records, first.figures), *_noted(row, first.held)),
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
    return _medians(ours, first) if first.contest is None else _change(ours, first, judged[first.key])


def _mini_batch(picked: RowSelection) -> tuple[float, ...]:
    """Of a row in seconds of an epoch: the medians of one mini-batch, side by side; nothing where a trial has none."""
    contest = picked.contest
    sides: list[tuple[str, Sequence[Record]]]
    if contest is None:
        sides = [(picked.metric, picked.records)] if len(picked.values) == 1 else []
    elif not picked.by:  # two figures of the same trials
        sides = [(name, picked.records) for name in picked.names]
    else:
        trials = [{one.trial for one in side} for side in (contest.theirs, contest.ours)]
        sides = [(picked.metric, tuple(each for each in picked.records if each.trial in those)) for those in trials]
    names = [(of_a_mini_batch(metric), records) for metric, records in sides]
    values = [[each.compared[name] for each in records if name in each.compared] for name, records in names if name]
    return tuple(median_estimate(side).value for side in values) if values and all(values) else ()


def _noted(row: Row, held: StoreTrials) -> tuple[str, ...]:
    """What the file says of our figure at the scale of this store."""
    note = row.ours_note.get(_scale(held))
    return () if note is None else (note,)


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


def _medians(ours: Ours, picked: RowSelection) -> Ours:
    """Two sides of which one has nothing in some trials."""
    medians = {name: median_estimate(side).value for name, side in zip(picked.names, picked.values, strict=True)}
    return replace(ours, sides=medians, n=min(map(len, picked.values)))


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
    ours, theirs = (
        [record for record in picked.records if record.trial in {one.trial for one in side}]
        for side in (contest.ours, contest.theirs)
    )
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
    whole = {row.quantity: found.rows[row.id][machine.name] for row in found.paper.rows if _is_whole(row)}
    held = next((held for study in TAKEN_APART for held in machine.of(study)), None)
    if held is None:
        return Layers(machine.name, whole, None, why="`tare why` was not run, or its store was not kept")
    try:
        return Layers(machine.name, whole, _apart(held), held.name, workload=_workload(held.records))
    except TareError as error:
        return Layers(machine.name, whole, None, held.name, str(error))


def _apart(held: StoreTrials) -> Waterfall:
    return waterfall(held.records, margin=request(held.study).margin)


def _workload(records: Sequence[Record]) -> str:
    """`torch_train lenet5`, or the command of the user's own."""
    settings: Mapping[str, Any] = next((record.settings for record in records if is_usable(record)), {})
    said = [settings[name] for name in _NAMED_BY if settings.get(name) is not None]
    return " ".join(" ".join(map(str, each)) if isinstance(each, list | tuple) else text(each) for each in said)


def _is_whole(row: Row) -> bool:
    """Whether a row is about the compute of a workload, in a container and without."""
    first = row.ours[0] if row.ours else None
    return isinstance(first, Change) and first.study == WHOLE and set(first.metric) <= set(_COMPUTE)
