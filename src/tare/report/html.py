"""The report as one file that opens anywhere: it asks for nothing, and nothing in a label can break out of it."""

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
from tare.records.store import Store
from tare.report.drawing import ABSENT, available, charts_json, script
from tare.report.page import page
from tare.report.words import NUMBER_AND_UNIT, safe_text


def render(
    weighing: Weighing,
    records: Sequence[Record],
    generated_utc: str,
    *,
    study_text: str = "",
    problems: Sequence[str] = (),
    store: Store | None = None,
) -> str:
    """The whole report of one weighing; `problems` are the store's sentences about what it could not read."""
    style = resources.files("tare.report").joinpath("templates", "report.css").read_text("utf-8")
    content = page(weighing, records, generated_utc, study_text, problems, store)
    drawn = bool(content.figures) and available()
    library = script() if drawn else ""
    return (
        templates()
        .get_template("report.html.j2")
        .render(
            page=content,
            drawn=drawn,
            without_charts="" if drawn else ABSENT,
            charts=Markup(charts_json(content.figures) if drawn else ""),  # safe: `safe_json` made it so
            script=Markup(library),  # ours and the library's, and its hash is in the policy
            style=Markup(style),  # the same
            policy=content_policy(style, library),
        )
    )


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
    return environment


def fine(text: str) -> str:
    """A figure as a printer would set it: a true minus, an arrow, and no line break before a unit."""
    text = text.replace("->", "\N{RIGHTWARDS ARROW}")
    text = re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", text)
    return NUMBER_AND_UNIT.sub("\N{NO-BREAK SPACE}", text)


def _shown(value: object) -> object:
    """Whatever a template puts into the page: our markup as it is, other text with its hidden signs written out."""
    return value if isinstance(value, Markup) else safe_text(value)
