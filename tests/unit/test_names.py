"""What is said by name alone, of a metric or of a setting: `tests/golden/names.jsonl` keeps every word of it.

Its names are those that kept packs hold, those that the source knows, and some that other tools write. A line is a
name with all that follows from it; to cover one more name, add a line with the name alone and accept the file.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import tare
from golden_files import FOLDER, assert_as_in_file
from tare.analysis.directions import direction_of, is_amount, kind_of
from tare.analysis.labels import name_words, place, setting_words, workload_kind
from tare.analysis.questions.titles import question
from tare.analysis.work import is_per_sample, is_per_step, per_sample
from tare.api.results import unit_of as unit_of_column
from tare.base.declare import before
from tare.base.text import has_unit, metric_name, quantity_text, scaled, unit_of
from tare.records.model import depends_on_speed

FILE = "names.jsonl"
SOURCE = Path(tare.__file__).parent
VALUES = (0, 1, 0.00184, -3.5, 2e9)


def of_metric(name: str) -> dict[str, Any]:
    words = {unit: metric_name(name, unit) for unit in ("request", "decode step")}
    return {
        "metric": name,
        "words": metric_name(name),
        **{f"of a {unit}": told for unit, told in words.items() if told != metric_name(name)},
        "values": [quantity_text(name, value) for value in VALUES],
        "axis": scaled(name, VALUES),
        "unit": [unit_of_column(name), *(["in words"] if has_unit(name) else [])],
        "direction": str(direction_of(name)),
        "kind": kind_of(name),
        "is": [test.__name__ for test in (is_amount, is_per_step, is_per_sample, depends_on_speed) if test(name)],
        "of a sample": per_sample(name),
    }


def of_setting(name: str, values: list[Any]) -> dict[str, Any]:
    told = [[value, setting_words(name, value)] for value in values]
    return {"setting": name, "words": name_words(name), "place": place(name), "values": told}


def of_part(name: str) -> dict[str, Any]:
    """A platform or a workload: a name says which only by where it stands."""
    return {
        "part": name,
        "kind": workload_kind(name),
        "step": unit_of([name]),
        "level": question([], name, "platform", []),
    }


def again(line: dict[str, Any]) -> dict[str, Any]:
    if "metric" in line:
        return of_metric(line["metric"])
    if "setting" in line:
        return of_setting(line["setting"], [value for value, *_ in line["values"]])
    return of_part(line["part"])


def test_what_is_said_of_a_name_is_what_the_file_keeps():
    kept = [json.loads(line) for line in (FOLDER / FILE).read_text(encoding="utf-8").splitlines()]
    assert_as_in_file("\n".join(json.dumps(again(line), ensure_ascii=False) for line in kept), FILE)


MOST_METRICS, MOST_SETTINGS = 51, 39  # may only fall
_READERS = ("analysis", "report", "records", "api", "cli")
_SETTING = re.compile(r"(workload|control|platform|device|probes)\.[a-z0-9_.]+")


def test_what_reads_records_asks_for_roles_and_not_for_names():
    """Literals that are a whole name; `steps` and other words without an underscore are ordinary words."""
    held = [value for room in _READERS for path in (SOURCE / room).rglob("*.py") for value in _literals(path)]
    metrics = [value for value in held if value in before().metrics and "_" in value]
    settings = [value for value in held if _SETTING.fullmatch(value)]
    assert len(metrics) <= MOST_METRICS, Counter(metrics)
    assert len(settings) <= MOST_SETTINGS, Counter(settings)


def _literals(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)]
