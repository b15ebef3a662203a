"""Texts and tables in Markdown, in which whatever a label holds stays text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tare.report.words import safe_text

_SPECIAL = re.compile(r"([\\`*_{}\[\]#!|<>~])")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """One line a row."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(line if line == "---" else safe(line) for line in row) + " |" for row in lines)


def safe(text: str) -> str:
    """Whatever a label holds stays text, in one line."""
    return _SPECIAL.sub(r"\\\1", safe_text(text))
