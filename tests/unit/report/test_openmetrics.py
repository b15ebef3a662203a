"""OpenMetrics text: what the format demands, what a hostile label cannot do, and who may read it while a study runs."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import some_weighings as some
from tare.report.other_tools import Numbers, as_openmetrics

SAMPLE = re.compile(r'(tare_\w+)\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)+)\} (\S+)')


def lines_of(text: str) -> list[tuple[str, dict[str, str], float]]:
    """Every sample; a line that is neither one nor a comment fails."""
    found = []
    for line in text.splitlines():
        if not line.startswith("#"):
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample[2]))
            found.append((sample[1], labels, float(sample[3])))
    return found


def test_every_family_is_declared_once_stands_together_and_the_text_has_its_end() -> None:
    weighing = some.several().weighing
    stores = [Numbers("a", {"ok": 3}, 4, weighing), Numbers("b", {"ok": 1, "failed": 2}, 9)]
    text = as_openmetrics(stores)
    declared = re.findall(r"^# TYPE (\w+) gauge$", text, re.MULTILINE)
    names = [name for name, _, _ in lines_of(text)]
    grouped = [name for name, _ in itertools.groupby(names)]
    assert declared == grouped
    assert len(declared) == len(set(declared))
    assert text.endswith("\n# EOF\n")


def test_a_verdict_is_one_of_four_and_its_effect_the_store_s() -> None:
    weighing = some.normal().weighing
    samples = lines_of(as_openmetrics([Numbers("s", {}, 0, weighing)]))
    for each in weighing.comparisons:
        ours = [s for s in samples if s[1].get("level") == each.level and s[1].get("metric") == each.metric]
        assert [s[1]["verdict"] for s in ours if s[0] == "tare_verdict" and s[2]] == [each.verdict]
        assert [s[2] for s in ours if s[0] == "tare_effect_ratio"] == [each.effect]
    assert len([s for s in samples if s[0] == "tare_verdict"]) == 4 * len(weighing.comparisons + weighing.tested)


def test_an_unknown_value_is_absent() -> None:
    weighing = some.normal().weighing
    without = replace(weighing, comparisons=(replace(weighing.comparisons[0], low=None, high=None),), tested=())
    names = {name for name, _, _ in lines_of(as_openmetrics([Numbers("s", {}, 0, without)]))}
    assert "tare_effect_ratio" in names
    assert not names & {"tare_effect_low_ratio", "tare_effect_high_ratio"}


def test_a_label_cannot_add_a_line_or_a_label() -> None:
    hostile = 'x"} 1\n# EOF\ntare_trials{state="\\'
    text = as_openmetrics([Numbers(hostile, {"ok": 1}, 1)])
    assert len(lines_of(text)) == 2
    assert text.count("\n# EOF") == 1
