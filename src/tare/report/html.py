"""The report as one file that opens anywhere: no script, no request, nothing that a label could break out of."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources

import jinja2
from markupsafe import Markup

from tare.analysis.model import Weighing
from tare.records.model import Record
from tare.report.page import page
from tare.report.words import NUMBER_AND_UNIT, safe_text


def render(
    weighing: Weighing,
    records: Sequence[Record],
    generated_utc: str,
    *,
    study_text: str = "",
    problems: Sequence[str] = (),
) -> str:
    """The whole report of one weighing; `problems` are the store's sentences about what it could not read."""
    style = resources.files("tare.report").joinpath("templates", "report.css").read_text("utf-8")
    return (
        _templates()
        .get_template("report.html.j2")
        .render(
            page=page(weighing, records, generated_utc, study_text, problems),
            style=Markup(style),  # ours, and its hash is in the policy
            policy=content_policy(style),
        )
    )


def content_policy(style: str) -> str:
    """What the page may do: look like its own style sheet, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tare.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,  # a name that is not there is our mistake, and must not become a gap
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["fine"] = fine
    return environment


def fine(text: str) -> str:
    """A figure as a printer would set it: a true minus, an arrow, and no line break before a unit."""
    text = text.replace("->", "\N{RIGHTWARDS ARROW}")
    text = re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", text)
    return NUMBER_AND_UNIT.sub("\N{NO-BREAK SPACE}", text)


def _shown(value: object) -> object:
    """Whatever a template puts into the page: our markup as it is, other text with its hidden signs written out."""
    return value if isinstance(value, Markup) else safe_text(value)
