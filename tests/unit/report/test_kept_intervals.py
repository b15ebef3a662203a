"""What the kept stores print: every value stands inside its interval, read as one unit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tare.cli import tare

KEPT = Path(__file__).parents[3] / "studies-results"
# `0.91 kJ [0.78, 1.03]`, `+1.6 % [+0.4, +2.9]`, and in a table with more blanks between them.
PAIR = re.compile(r"([-+]?[\d,]*\.?\d+)(?: (?:[a-zµKMGT%°]\w*|[A-Z]))? +\[([-+]?[\d,.]+), ([-+]?[\d,.]+)\]")


def outside(text: str) -> list[str]:
    """The pairs whose value does not lie in the interval beside it."""
    found = []
    for match in PAIR.finditer(text):
        value, low, high = (float(number.replace(",", "")) for number in match.groups())
        if not low <= value <= high:
            found.append(match[0])
    return found


@pytest.mark.parametrize("text", ["913 J [0.78, 1.03]", "950 mJ [0.90, 1.02]", "12.0 %   [+1.0, +2.0]"])
def test_a_value_in_another_unit_than_its_interval_is_found(text: str) -> None:
    assert outside(f"bare: {text} at 2 W") == [text]


def printed(*words: str) -> str:
    done = CliRunner().invoke(tare, words, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_energy_of_a_kept_store_is_in_the_unit_of_its_interval() -> None:
    """It has sides of enough trials for an interval."""
    text = printed("show", "energy", str(KEPT / "h200" / "s3-pipeline.tare"))
    assert PAIR.search(text)
    assert outside(text) == []


@pytest.mark.deep
@pytest.mark.parametrize("pack", sorted(KEPT.glob("*/*.tare")), ids=lambda pack: f"{pack.parent.name}-{pack.stem}")
def test_every_value_of_a_kept_store_is_in_the_unit_of_its_interval(pack: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.md"
    printed("report", str(pack), "-o", str(page))
    for text in (printed("compare", str(pack)), printed("show", "energy", str(pack)), page.read_text()):
        assert outside(text) == []
