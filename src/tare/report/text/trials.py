"""Records as text: a table of many (`tare show DIR`), everything about one (`tare show DIR TRIAL`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tare.base.columns import wrap
from tare.base.declare import Role
from tare.base.sides import is_rehearsal
from tare.base.text import cpu_text, has_unit, metric_name, quantity_text, quantity_texts, safe_text, time_text, unit_of
from tare.records.model import AA_REPEAT, Record, grouped, varied
from tare.report.columns import sentences, table


def loadgen_sentences(record: Record) -> list[str]:
    """LoadGen's verdict with its reasons, and how far its clock is from ours; nothing where it did not drive."""
    outcome = record.facts.get("outcome")
    said = outcome.get("loadgen") if isinstance(outcome, Mapping) else None
    if not isinstance(said, Mapping):
        return []
    return [_verdict(said), *_gap(record)]


def _verdict(said: Mapping[str, Any]) -> str:
    reasons = said.get("reasons")
    why = ": " + " ".join(safe_text(reason) for reason in reasons) if isinstance(reasons, list) and reasons else "."
    return f"LoadGen reports {safe_text(said.get('result'))} ({safe_text(said.get('scenario'))}){why}"


def _gap(record: Record) -> list[str]:
    needed = ("end_to_end_s", "loadgen_mean_s", "loadgen_gap_s")
    if not all(name in record.metrics for name in needed):
        return []
    ours_s, theirs_s, gap_s = (record.metrics[name] for name in needed)
    less_or_more = "less" if gap_s >= 0 else "more"
    return [
        f"On LoadGen's clock a sample takes {time_text(theirs_s)} on average, from its file to its answer "
        f"{time_text(ours_s)}: LoadGen sees {time_text(abs(gap_s))} {less_or_more}."
    ]


SHORT_ID = 8  # enough to find a trial by; `Store.find` takes a prefix
ANY_WIDTH = 10_000
SHOWN_METRICS = (
    Role.STEP_MEDIAN.metric,
    Role.WHOLE_RUN.metric,
    Role.CPU.metric,
)  # what everyone asks for first; the rest is in the report


def records_table(records: Sequence[Record], width: int = 80) -> str:
    """One line for each trial: what set it apart, how it ended, its first figures."""
    if not records:
        return "no trials yet"
    factors = varied_settings(records)
    metrics = [metric for metric in SHOWN_METRICS if any(metric in record.metrics for record in records)]
    unit = unit_of(record.settings.get("workload") for record in records)
    headers = [
        "trial",
        "block",
        *(_short(factor) for factor in factors),
        "state",
        *(metric_name(metric, unit) for metric in metrics),
    ]
    figures = [figures_column(metric, [record.metrics for record in records]) for metric in metrics]
    rows = [
        [
            safe_text(record.trial)[:SHORT_ID],
            record.block,
            *(setting_text(record, factor) for factor in factors),
            record.state,
            *(column[place] for column in figures),
        ]
        for place, record in enumerate(records)
    ]
    return "\n".join([table(rows, headers, width), *_why(records, width)])


def records_lines(records: Sequence[Record]) -> str:
    """The same for programs that read lines: one for each trial, nothing cut, the reason at its end."""
    if not records:
        return "no trials yet"
    whole = records_table([replace(record, reasons=()) for record in records], ANY_WIDTH).splitlines()
    reasons = ["why", *(safe_text(record.reasons[0]) if record.reasons else "" for record in records)]
    return "\n".join(f"{line}  {why}".rstrip() for line, why in zip(whole, reasons, strict=True))


def _why(records: Sequence[Record], width: int) -> list[str]:
    """Why trials are not plainly ok, each reason once: the first of them, and how many more have it."""
    doubted = [record for record in records if record.reasons]
    lines: list[str] = []
    for same in grouped(doubted, lambda each: (each.state, each.reasons[0].code, each.reasons[0].subject)).values():
        first, others = same[0], len(same) - 1
        every = "all " if len(same) == len(records) > 1 else ""
        which = f"{every}{len(same)} trials" if others else safe_text(first.trial)[:SHORT_ID]
        example = f" (of {safe_text(first.trial)[:SHORT_ID]})" if others else ""
        why = f"{which} {first.state}: {safe_text(first.reasons[0])}{example}"
        lines += wrap(why, width, indent="  ")
    return lines


def record_text(record: Record, width: int = 80) -> str:
    """Everything that one record says, section by section; a section without content is left out."""
    head = f"trial {safe_text(record.trial)}, attempt {record.attempt}: {safe_text(record.state)}"
    where = "rehearsal, no data" if is_rehearsal(record.trial) else f"block {record.block}, position {record.position}"
    place = f"{safe_text(record.study)}, {where}"
    begun = f", started {safe_text(record.started_utc)}" if record.started_utc else ""
    lines = [*wrap(head, width), *wrap(place + begun, width)]
    reasons = (f"because: {reason}" for reason in record.reasons)
    notes = (f"note: {note}" for note in record.notes)
    lines += sentences((*reasons, *notes, *loadgen_sentences(record)), width)
    metrics = [(metric_name(name, record.unit), quantity_text(name, value)) for name, value in record.metrics.items()]
    phases = [(name, time_text(seconds)) for name, seconds in record.phases.items()]
    sections = {"metrics": metrics, "phases": phases, "settings": flat_pairs(record.settings)}
    sections["facts"] = flat_pairs(record.facts)
    for name, pairs in sections.items():
        if pairs:
            lines += ["", name, table(pairs, (), width, indent="  ")]
    return "\n".join(lines)


def varied_settings(records: Iterable[Record]) -> list[str]:
    """The platform, and every setting that is not the same in all records."""
    return varied([record.settings for record in records])


def flat_pairs(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested plain data as dotted names and texts: `{"torch": {"version": "2.13"}}` is `torch.version`, `2.13`."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        key = f"{prefix}{safe_text(name)}"
        pairs += flat_pairs(value, f"{key}.") if isinstance(value, Mapping) else [(key, _told(str(name), value))]
    return pairs


def plain_text(value: Any) -> str:
    """Plain data as one line of text; what is absent is `none`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(plain_text(item) for item in value)
    if isinstance(value, Mapping):
        return "; ".join(f"{safe_text(name)} {plain_text(item)}" for name, item in value.items())
    return safe_text(value)


def _told(name: str, value: Any) -> str:
    """A number whose name has a unit is told in it, a processor by its name; anything else as it is."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return quantity_text(name, value) if is_number and has_unit(name) else cpu_text(plain_text(value))


def figures_column(metric: str, held: Sequence[Mapping[str, float]]) -> list[str]:
    """One metric of all trials, in one unit; empty where one does not have it."""
    texts = iter(quantity_texts(metric, [metrics[metric] for metrics in held if metric in metrics]))
    return [next(texts) if metric in metrics else "" for metrics in held]


def setting_text(record: Record, factor: str) -> str:
    """One setting of a trial; of an A/A repeat, its platform with that word."""
    text = plain_text(record.settings[factor]) if factor in record.settings else ""
    return f"{text} ({AA_REPEAT})" if factor == "platform" and record.twin else text


def _short(factor: str) -> str:
    return safe_text(factor).removeprefix("workload.").removeprefix("control.")
