"""One table and everything that is said about it, kept as files: a change of any figure must be meant.

After a change that is meant: python tests/unit/analysis/test_golden_comparison.py
"""

import json
from pathlib import Path

import pytest

from tare.analysis.weighing import weigh_table

GOLDEN = Path(__file__).parents[2] / "golden" / "analysis"


def said(block):
    weighing = weigh_table(GOLDEN / "platforms.csv", by="platform", value="step_s", block=block, margin=0.05)
    return json.loads(json.dumps([each.as_json() for each in weighing.comparisons]))


def same(found, expected):
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found == (pytest.approx(expected, rel=1e-6) if isinstance(expected, float) else expected)


@pytest.mark.parametrize(("name", "block"), [("paired", "block"), ("unpaired", None)])
def test_the_golden_table_gets_the_golden_answer(name, block):
    expected = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))

    for found, kept in zip(said(block), expected, strict=True):
        assert same(found, kept), f"{found}\nis not\n{kept}"


if __name__ == "__main__":
    for name, block in (("paired", "block"), ("unpaired", None)):
        (GOLDEN / f"{name}.json").write_text(json.dumps(said(block), indent=1) + "\n", encoding="utf-8")
