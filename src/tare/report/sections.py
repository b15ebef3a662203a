"""Sections of an answer on a terminal, in Markdown and on a page: columns, fonts and escapes; nothing is computed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.analysis.sections import Answer, Chart, List, Note, Section, Table, sentence_text
from tare.base.columns import wrap
from tare.base.text import safe_text
from tare.report.columns import sentences, table
from tare.report.figure import Cell

NOTE = "note: "


def answer_text(answer: Answer[Any], width: int = 80, *, verbose: bool = False) -> str:
    """The sentence, then each section under its title; a terminal shows no charts."""
    blocks = [sentences([sentence_text(answer.sentence)], width)] if answer.sentence else []
    for section, body in answer.shown():
        if not isinstance(body, Chart) and (verbose or section.level != "verbose"):
            blocks.append([*wrap(safe_text(section.title), width), body_text(body, width)])
    return "\n\n".join("\n".join(block) for block in blocks)


def body_text(body: Table | Note | List, width: int = 80) -> str:
    """A section without its title."""
    match body:
        case Table():
            headers, rows, _ = body.grid()
            lines = [table(rows, headers, width), *sentences(map(sentence_text, body.notes), width)]
        case Note():
            lines = sentences((NOTE + sentence_text(each) for each in body.sentences), width)
        case List():
            lines = sentences(map(sentence_text, body.sentences), width)
    return "\n".join(lines)


_SPECIAL = re.compile(r"([\\`*_{}\[\]#!|<>~])")


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """One line a row."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(
        "| " + " | ".join(cell if cell == "---" else markdown_safe(cell) for cell in row) + " |" for row in lines
    )


def markdown_safe(text: str) -> str:
    """Whatever a label holds stays text, in one line."""
    return _SPECIAL.sub(r"\\\1", safe_text(text))


@dataclass(frozen=True, slots=True)
class PageSection:
    """A section as the template of the page shows it."""

    name: str
    title: str
    lines: tuple[str, ...]
    headers: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()


def page_sections(answer: Answer[Any], hrefs: Mapping[str, str]) -> list[PageSection]:
    """The sentence, and what is shown beside the charts."""
    name = f"{answer.sections[0].name}-answer"
    told = [PageSection(name, "", (sentence_text(answer.sentence),))] if answer.sentence else []
    return told + [
        page_section(section, body, hrefs) for section, body in answer.shown() if not isinstance(body, Chart)
    ]


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
        tuple(Cell(text, hrefs.get(str(raw[0]), ""), number) for text, number in zip(row, numeric, strict=True))
        for raw, row in zip(held.rows, rows, strict=True)
    )
    return tuple(headers), tuple(cells)


def section_markdown(section: PageSection) -> list[str]:
    """Blocks of Markdown: the title, the table and the sentences."""
    blocks = [f"## {markdown_safe(section.title)}"] if section.title else []
    blocks += [markdown_table(section.headers, [[cell.text for cell in row] for row in section.rows])] * bool(
        section.rows
    )
    return blocks + ["\n".join(f"- {markdown_safe(line)}" for line in section.lines)] * bool(section.lines)
