"""Sections of an answer on a terminal, in Markdown and on a page: columns, fonts and escapes; nothing is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.analysis.sections import Answer, Body, Chart, List, Note, Section, Sentence, Table, sentence_text
from tare.base.columns import wrap
from tare.base.text import safe_text
from tare.report.columns import sentences, table
from tare.report.export import safe as markdown_safe
from tare.report.export import table as markdown_table
from tare.report.figure import Cell

NOTE = "note: "


def answer_text(answer: Answer[Any], width: int = 80, *, verbose: bool = False) -> str:
    """The sentence, then each section under its title; a terminal shows no charts."""
    blocks = [sentences([sentence_text(answer.sentence)], width)] if answer.sentence else []
    for section, body in answer.shown():
        if not isinstance(body, Chart) and (verbose or section.level != "verbose"):
            blocks.append([*wrap(safe_text(section.title), width), *_lines(body, width)])
    return "\n\n".join("\n".join(block) for block in blocks)


def _lines(body: Body, width: int) -> list[str]:
    match body:
        case Table():
            headers, rows, _ = body.grid()
            return [table(rows, headers, width), *sentences(map(sentence_text, body.notes), width)]
        case Note():
            return sentences((NOTE + sentence_text(each) for each in body.sentences), width)
        case List():
            return sentences(map(sentence_text, body.sentences), width)
        case Chart():
            return []


def section_markdown(section: Section, body: Body) -> list[str]:
    """Blocks of Markdown; of a chart, what there is to see in it and its table."""
    match body:
        case Table():
            blocks = [markdown_table(*body.grid()[:2]), *_points(body.notes)]
        case Note() | List():
            blocks = _points(body.sentences)
        case Chart():
            blocks = [markdown_safe(sentence_text(body.reading)), markdown_table(*body.table.grid()[:2])]
    return [f"## {markdown_safe(section.title)}", *blocks] if section.title else blocks


def _points(told: tuple[Sentence, ...]) -> list[str]:
    return ["\n".join(f"- {markdown_safe(sentence_text(each))}" for each in told)] if told else []


@dataclass(frozen=True, slots=True)
class PageSection:
    """A section as the template of the page shows it."""

    name: str
    title: str
    lines: tuple[str, ...]
    headers: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()


def page_section(section: Section, body: Table | Note | List, hrefs: Mapping[str, str]) -> PageSection:
    """A row whose first cell is a level leads to the trials of this level."""
    if not isinstance(body, Table):
        return PageSection(section.name, section.title, tuple(map(sentence_text, body.sentences)))
    told = tuple(map(sentence_text, body.notes))
    return PageSection(section.name, section.title, told, *linked_rows(body, hrefs))


def linked_rows(held: Table, hrefs: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...]]:
    """Headers, and rows that lead to the trials behind them."""
    headers, rows, numeric = held.grid()
    cells = (
        tuple(Cell(text, hrefs.get(row[0], ""), is_number) for text, is_number in zip(row, numeric, strict=True))
        for row in rows
    )
    return tuple(headers), tuple(cells)
