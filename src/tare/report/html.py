"""The report as one file that opens anywhere: it asks for nothing, and nothing in a label can break out of it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

from tare import __version__
from tare.analysis.answer import medians_disagree, sentences_of
from tare.analysis.model import Comparison, FlaggedTrial, Weighing
from tare.analysis.selection import START_UP
from tare.analysis.sentences import (
    NO_TRIAL,
    answer_sentence,
    direction_text,
    effect_of,
    floor_of,
    interaction_sentence,
    interval_of,
    plain_word,
    sensitivity_of,
    verdict_doubts,
    verdict_phrase,
    verdict_reading,
    verdict_word,
    what_costs,
)
from tare.base.columns import NUMBER_AND_UNIT
from tare.base.text import count_text, cpu_text, in_units, metric_name, safe_text
from tare.records.model import Record, grouped
from tare.records.store import Store
from tare.report.charts.effects import waterfall_reading
from tare.report.charts.every import GROUPS, figures, in_groups
from tare.report.evidence import (
    ReportData,
    ReportRow,
    SoftwareLine,
    level_order,
    parity_sentence,
    shown_trials,
    software_lines,
)
from tare.report.figure import (
    ABSENT,
    Cell,
    Figure,
    available,
    compiled,
    safe_json,
    script,
    static_svg,
)
from tare.report.following import Source, next_steps
from tare.report.panels import Plot, effect_plot, waterfall_plot
from tare.report.sections import PageSection, page_sections
from tare.report.text.trials import SHORT_ID, figures_column, flat_pairs
from tare.report.text.verdict import (
    baseline_of,
    baselines,
    counts_text,
    coverage_text,
    difference_text,
    hidden_by,
    is_complete,
    left_text,
    median_text,
    medians_of,
    notes_together,
    taints,
)

MOST_ANSWERS = 6  # that fit a first screen, each by itself


@dataclass(frozen=True, slots=True)
class Answer:
    """One verdict, large."""

    level: str
    word: str  # slower, faster, equivalent, cannot_tell: the colour goes by it, the phrase says it
    phrase: str
    doubts: str
    sentence: str
    reading: str
    further: tuple[str, ...] = ()  # what else is tested of this level, and what it hides
    costs: str = ""  # which line costs, the steady state or the start-up


def answers_of(weighing: Weighing) -> list[Answer]:
    """One for each comparison; none where they are many: then the table of verdicts has them."""
    few = len(weighing.comparisons) <= MOST_ANSWERS
    return [_answer(each, weighing) for each in weighing.comparisons] if few else []


def _answer(comparison: Comparison, weighing: Weighing) -> Answer:
    pair = (comparison.level, comparison.against)
    tested = [each for each in weighing.tested if (each.level, each.against) == pair]
    start = next((each for each in tested if each.metric == START_UP), None)
    return Answer(
        level=comparison.level,
        word=comparison.verdict,
        phrase=verdict_word(comparison),
        doubts=verdict_doubts(comparison),
        sentence=answer_sentence(comparison),
        reading=verdict_reading(comparison),
        further=tuple(
            f"{each.called} {effect_of(each)} {interval_of(each)}: {verdict_phrase(each)}." for each in tested
        ),
        costs=what_costs(comparison, start) if start is not None and comparison.effect is not None else "",
    )


def notes_of(weighing: Weighing) -> list[str]:
    """All notes; where many levels have the same one, it is told once, with some of their names."""
    medians = [sentence for each in weighing.comparisons if (sentence := medians_disagree(each))]
    notes = notes_together(weighing)
    return list(dict.fromkeys([*hidden_by(weighing), *medians, *notes, *map(safe_text, weighing.notes)]))


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One line of the verdict table."""

    level: str
    href: str
    median: str
    spread: str
    effect: str = ""
    interval: str = ""
    phrase: str = "baseline"
    word: str = ""
    sensitivity: str = ""
    floor: str = ""
    n: str = ""


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One line of the table of all trials."""

    shown: ReportRow
    short: str
    figures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrialGroup:
    """The trials of one level."""

    anchor: str
    level: str
    rows: tuple[TrialRow, ...]


@dataclass(frozen=True, slots=True)
class Headline:
    """The first screen: the answer with its subject, what belongs to it, and what to do next."""

    word: str
    title: str
    sentence: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FigureGroup:
    """Figures and sections that are folded together."""

    anchor: str
    title: str
    figures: tuple[Figure, ...]
    sections: tuple[PageSection, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that the template needs."""

    weighing: Weighing
    headline: Headline
    plot: Plot | None
    figure_groups: tuple[FigureGroup, ...]
    question: str  # what the study says it is about, else who is compared with whom
    provenance: str
    generated_utc: str
    metric: str
    counts: str
    complete: bool
    coverage: str
    answers: tuple[Answer, ...]
    verdicts: tuple[VerdictRow, ...]
    other_headers: tuple[str, ...]
    others: tuple[tuple[Cell, ...], ...]
    left_out: tuple[Cell, ...]
    outliers: tuple[Cell, ...]
    tested_headers: tuple[str, ...]
    tested: tuple[tuple[Cell, ...], ...]
    interactions: tuple[str, ...]
    direction: str
    sides: tuple[str, str] | None  # what lies left and right of zero, in words
    machine: str  # what it ran on, in short
    taints: tuple[str, ...]
    differences: tuple[str, ...]
    parity: str
    notes: tuple[str, ...]
    problems: tuple[str, ...]
    devices: Sequence[PageSection]
    figures: tuple[Figure, ...]
    sections: tuple[PageSection, ...]
    trial_metrics: tuple[str, ...]
    groups: tuple[TrialGroup, ...]
    methods: tuple[str, ...]
    device: tuple[tuple[str, str], ...]
    software: tuple[SoftwareLine, ...]
    study_lines: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]


def _sides(comparison: Comparison) -> tuple[str, str]:
    """What a lower figure means, and a higher one: `faster` and `slower`, of a rate the other way round."""
    good, bad = plain_word(comparison, "faster"), plain_word(comparison, "slower")
    return (bad, good) if comparison.direction.rises else (good, bad)


def _machine(device: Mapping[str, Any], records: Sequence[Record]) -> str:
    """`NVIDIA H200, Neoverse-N1, 2 cores`: enough to tell the reports of two machines apart."""
    named = device.get("board") or device.get("gpu") or cpu_text(str(device.get("cpu") or device.get("machine", "")))
    cores = device.get("cores")
    told = [*_gpus(records), str(named), count_text(cores, "core") if isinstance(cores, int) else ""]
    return ", ".join(dict.fromkeys(filter(None, told)))


def _gpus(records: Sequence[Record]) -> list[str]:
    """The GPUs that the workloads saw."""
    found = []
    for record in records:
        facts: Any = record.facts
        for name in ("inside", "torch", "gpu", "name"):
            facts = facts.get(name) if isinstance(facts, Mapping) else None
        found += [facts] if isinstance(facts, str) else []
    return list(dict.fromkeys(found))


def page(
    weighing: Weighing,
    records: Sequence[Record],
    generated_utc: str,
    study_text: str,
    problems: Sequence[str],
    store: Store | None = None,
) -> Page:
    """The page of one weighing; with its store also figures of the series."""
    shown = shown_trials(weighing, records)
    levels = level_order(weighing, shown)
    hrefs = {level: f"#level-{place}" for place, level in enumerate(levels)}
    anchors = {each.trial: f"#{each.anchor}" for each in shown}
    wanted = dict.fromkeys([weighing.metric, *(each.metric for each in weighing.others)])
    metrics = [metric for metric in wanted if any(metric in each.metrics for each in shown)]
    by_level = grouped(shown, lambda each: each.level)
    evidence = ReportData(weighing, shown, hrefs, records, store)
    drawn = tuple(figures(evidence))
    sections = [section for answer in evidence.answers for section in page_sections(answer, hrefs)]
    plot = _plot(evidence)
    answers = tuple(answers_of(weighing))
    other_headers, others = _others(weighing, hrefs)
    question = _about(store) or weighing.question or weighing.study
    if plot is not None and plot.waterfall:
        question = f"{LAYERS} runc with {count_text(plot.lanes - 1, 'layer')} against bare metal."
    return Page(
        weighing=weighing,
        headline=_headline(evidence, answers, plot),
        plot=plot,
        figure_groups=tuple(_figure_groups(drawn, sections, weighing.unit)),
        question=question,
        provenance=provenance(weighing, records),
        generated_utc=generated_utc,
        metric=weighing.called,
        counts=counts_text(weighing.counts),
        complete=is_complete(weighing.counts),
        coverage=coverage_text(weighing.comparisons),
        answers=answers,
        verdicts=tuple(_verdict_rows(weighing, hrefs)),
        other_headers=other_headers,
        others=others,
        left_out=tuple(_listed(left, anchors) for left in weighing.left_out),
        outliers=tuple(_listed(left, anchors) for left in weighing.outliers),
        tested_headers=TESTED_HEADERS,
        tested=tuple((*_figures_row(each, hrefs), Cell(verdict_phrase(each))) for each in weighing.tested),
        interactions=tuple(map(interaction_sentence, weighing.interactions)),
        direction=direction_text([*weighing.comparisons, *weighing.tested]),
        sides=_sides(weighing.comparisons[0]) if weighing.comparisons else None,
        machine=_machine(weighing.facts.get("device", weighing.facts), records),
        taints=tuple(taints(weighing)),
        differences=tuple(difference_text(each) for each in weighing.differences if not each.matters),
        parity=parity_sentence(weighing, shown, records),
        notes=tuple(notes_of(weighing)),
        problems=tuple(problems),
        devices=_devices(evidence),
        figures=drawn,
        sections=tuple(sections),
        trial_metrics=tuple(metric_name(metric, weighing.unit) for metric in metrics),
        groups=tuple(_group(level, hrefs[level], by_level.get(level, []), metrics) for level in levels),
        methods=tuple(dict.fromkeys(each.method for each in weighing.comparisons if each.method)),
        device=tuple(flat_pairs(weighing.facts.get("device", weighing.facts))),
        software=tuple(software_lines(shown, records)),
        study_lines=tuple(study_text.splitlines()),
        versions=tuple(_versions(records)),
    )


def _figure_groups(drawn: Sequence[Figure], sections: Sequence[PageSection], unit: str) -> Iterator[FigureGroup]:
    """`unit`: what a step is for people."""
    of_figures, of_sections = in_groups(drawn), in_groups(sections)
    for anchor, title, _ in GROUPS:
        if of_figures[anchor] or of_sections[anchor]:
            yield FigureGroup(anchor, in_units(title, unit), tuple(of_figures[anchor]), tuple(of_sections[anchor]))


def _devices(evidence: ReportData) -> list[PageSection]:
    if evidence.fleet is None:
        return []
    from tare.analysis.fleet.devices import devices_answer  # brings the model of devices: not where there is one device

    return page_sections(devices_answer(evidence.fleet), {})


def _plot(evidence: ReportData) -> Plot | None:
    """The waterfall where layers of a container were run, else the effects."""
    if evidence.layers is not None and (plot := waterfall_plot(evidence.layers)) is not None:
        return plot
    return effect_plot(evidence.weighing, evidence.shown, evidence.places, evidence.level_hrefs)


def _headline(evidence: ReportData, answers: Sequence[Answer], plot: Plot | None) -> Headline:
    weighing = evidence.weighing
    source = Source.of(evidence.store, evidence.records)
    steps = tuple(map(str, next_steps(weighing, source, explained=plot is not None and plot.waterfall)))
    if plot is not None and plot.waterfall and (layers := evidence.layers) is not None:
        title = f"The whole container: {verdict_word(layers.total)}"
        return Headline(layers.total.verdict, title, waterfall_reading(layers), steps)
    if not weighing.comparisons:
        what = "nothing was compared" if len(weighing.medians) > 1 else "nothing to compare yet"
        return Headline(
            "cannot_tell", f"{safe_text(weighing.question)}: {what}", f"{counts_text(weighing.counts)}.", steps
        )
    first, *rest = sentences_of(weighing)
    words = {each.verdict for each in weighing.comparisons}
    if len(weighing.comparisons) == 1 and answers:
        rest = [f"{answers[0].level} {answers[0].sentence}", *rest]
    knees = (each[:1].upper() + each[1:] for each in weighing.knees)
    word = words.pop() if len(words) == 1 and not weighing.headline else "mixed"
    return Headline(word, first.removesuffix("."), " ".join([*rest, *knees]), steps)


def provenance(weighing: Weighing, records: Sequence[Record]) -> str:
    """When the trials were run and on what, how many they are, and what is suspect in them."""
    began = sorted(record.started_utc for record in records if record.started_utc)
    first, last = (_minute(began[0]), _minute(began[-1])) if began else ("", "")
    days = f"{first} to {last[11:] if first[:10] == last[:10] else last} UTC" if first != last else f"{first} UTC"
    told = [f"Trials of {days}" if began else "", _machine(weighing.facts.get("device", weighing.facts), records)]
    told += [count_text(len({record.block for record in records}), "block"), counts_text(weighing.counts)]
    line = f"{'; '.join(filter(None, told))}."
    why = [record.reasons[0] for record in records if record.state == "suspect" and record.reasons]
    if several := sorted(grouped(why, lambda each: each.code).values(), key=len, reverse=True):
        most = several[0]
        line += f" Suspect trials are included; most often ({len(most)}): {str(most[0]).rstrip('.')}, for one."
    return safe_text(line)


def _minute(when: str) -> str:
    return when[:16].replace("T", " ")


def _verdict_rows(weighing: Weighing, hrefs: Mapping[str, str]) -> list[VerdictRow]:
    rows = []
    for against, held in baselines(weighing.comparisons).items():
        theirs = baseline_of(held)
        median, spread = median_text(weighing.metric, theirs) if theirs is not None else (NO_TRIAL, "")
        n = str(theirs.n) if theirs is not None else "0"
        rows.append(VerdictRow(against, hrefs.get(against, ""), median, spread, n=n))
        rows += [_verdict_row(each, hrefs.get(each.level, "")) for each in held]
    return rows


def _verdict_row(each: Comparison, href: str) -> VerdictRow:
    median, spread = median_text(each.metric, each.ours) if each.ours is not None else (NO_TRIAL, "")
    return VerdictRow(
        level=each.level,
        href=href,
        median=median,
        spread=spread,
        effect=effect_of(each),
        interval=interval_of(each),
        phrase=verdict_phrase(each),
        word=each.verdict,
        sensitivity=sensitivity_of(each),
        floor=floor_of(each),
        n=str(each.n),
    )


def _others(weighing: Weighing, hrefs: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...]]:
    """Headers and rows of the metrics that are not tested; the level is named where there are several."""
    rows = tuple(_figures_row(each, hrefs) for each in weighing.others)
    if len(weighing.comparisons) > 1:
        return ("level", "metric", weighing.against, "level", "effect", "interval"), rows
    level = weighing.comparisons[0].level if weighing.comparisons else "level"
    return ("metric", weighing.against, level, "effect", "interval"), tuple(row[1:] for row in rows)


TESTED_HEADERS = ("level", "metric", "against", "median", "effect", "interval", "verdict")


def _figures_row(each: Comparison, hrefs: Mapping[str, str]) -> tuple[Cell, ...]:
    """The level, then the metric with its medians on both sides, the effect and its interval."""
    theirs, ours = medians_of(each)
    return (
        Cell(each.level, hrefs.get(each.level, "")),
        Cell(each.called),
        Cell(theirs, hrefs.get(each.against, ""), numeric=True),
        Cell(ours, hrefs.get(each.level, ""), numeric=True),
        Cell(effect_of(each), "#trials", numeric=True),
        Cell(interval_of(each), numeric=True),
    )


def _listed(left: FlaggedTrial, anchors: Mapping[str, str]) -> Cell:
    return Cell(left_text(left), anchors.get(left.trial, ""))


def _group(level: str, href: str, held: Sequence[ReportRow], metrics: Sequence[str]) -> TrialGroup:
    columns = [figures_column(metric, [each.metrics for each in held]) for metric in metrics]
    rows = (
        TrialRow(each, safe_text(each.trial)[:SHORT_ID], tuple(column[place] for column in columns))
        for place, each in enumerate(held)
    )
    return TrialGroup(href.removeprefix("#"), level, tuple(rows))


def _versions(records: Sequence[Record]) -> list[tuple[str, str]]:
    measured = sorted({record.tare_version for record in records if record.tare_version})
    started = [record.started_utc for record in records if record.started_utc]
    told = [("this report made by", f"tare {__version__}")]
    told += [("trials run by", f"tare {', '.join(measured)}")] if measured else []
    told += [("first trial started", min(started)), ("last trial started", max(started))] if started else []
    return told


LAYERS = "Which layer of the container costs what?"
LONGEST_TITLE = 160


def _about(store: Store | None) -> str:
    """The first sentence of the study's `about`; nothing where it has none, or none that is a title."""
    about = " ".join(str(store.study.get("about") or "").split()) if store is not None else ""
    first = re.split(r"(?<=[.?!]) ", about, maxsplit=1)[0].removesuffix(".")
    return first if len(first) <= LONGEST_TITLE else ""


def first_screen(weighing: Weighing, records: Sequence[Record]) -> str:
    """The answer alone, as a document without scripts: for a notebook, or a mail."""
    style = _template("report.css")
    content = page(weighing, records, "", "", ())
    return templates().get_template("notebook.html.j2").render(page=content, style=Markup(style))


def render(
    weighing: Weighing,
    records: Sequence[Record],
    generated_utc: str,
    *,
    study_text: str = "",
    problems: Sequence[str] = (),
    store: Store | None = None,
    interactive: bool = True,
) -> str:
    """The whole report of one weighing; `problems` are the store's sentences about what it could not read.

    Without `interactive` its charts are only drawings, and it is smaller by the chart library.
    """
    style = _template("report.css")
    content = page(weighing, records, generated_utc, study_text, problems, store)
    groups = [figure for group in content.figure_groups for figure in group.figures]
    drawn = bool(groups) and available()
    charts = {figure.name: compiled(figure) for figure in groups} if drawn else {}
    interactive = interactive and drawn
    library = script("page.js", "figures.js") if interactive else _template("page.js")
    return (
        templates()
        .get_template("report.html.j2")
        .render(
            page=content,
            drawn=drawn,
            interactive=interactive,
            without_charts="" if drawn else ABSENT,
            # Safe: `static_svg` keeps shapes, text and links within the page alone, and `safe_json` ends no element.
            still={name: Markup(static_svg(name, chart)) for name, chart in charts.items()},
            charts=Markup(safe_json(charts)),
            script=Markup(library),  # ours and the library's, and its hash is in the policy
            style=Markup(style),  # the same
            policy=content_policy(style, library),
        )
    )


def _template(name: str) -> str:
    return resources.files("tare.report").joinpath("templates", name).read_text("utf-8")


def content_policy(style: str, library: str) -> str:
    """What the page may do: look like its own style sheet, run its own script, and nothing else."""
    scripts = f"script-src 'sha256-{_digest(library)}'; " if library else ""
    rest = "img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; {scripts}style-src 'sha256-{_digest(style)}'; {rest}"


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def templates() -> jinja2.Environment:
    """Our templates, with everything that they put in escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tare.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,  # a name that is not there is our mistake, and must not become a gap
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["fine"] = fine
    environment.filters["coded"] = coded
    return environment


def fine(text: str) -> str:
    """A figure as a printer would set it: a true minus, an arrow, and no line break before a unit."""
    text = text.replace("->", "\N{RIGHTWARDS ARROW}")
    text = re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", text)
    return NUMBER_AND_UNIT.sub("\N{NO-BREAK SPACE}", text)


def coded(text: str) -> Markup:
    """A sentence of ours with its commands, which stand between back quotes, as code."""
    parts = [escape(safe_text(part)) for part in fine(text).split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts))


def _shown(value: object) -> object:
    """Whatever a template puts into the page: our markup as it is, other text with its hidden signs written out."""
    return value if isinstance(value, Markup) else safe_text(value)
