"""Labels, facts, reasons and the study's own text are data: whatever they hold, the page keeps its bones."""

from __future__ import annotations

from dataclasses import replace

import pytest

import some_weighings as some
from hostile import PAYLOADS, hostile_sample
from html_reading import Element, read_page, without_drawings
from tare.report.html import render

# What may differ: texts for people, never the names of anything.
SPOKEN = ("aria-label",)


def bones(page: str) -> list[tuple[str, dict[str, str]]]:
    tree = read_page(without_drawings(page))
    return [(each.tag, {name: _bare(name, value) for name, value in each.attributes.items()}) for each in tree.inside()]


def _bare(name: str, value: str) -> str:
    return "" if name in (*SPOKEN, "data-told", "content") else value


def report(sample: some.Sample, study_text: str, problem: str) -> str:
    return render(sample.weighing, sample.records, some.GENERATED, study_text=study_text, problems=[problem])


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_element_and_no_attribute_comes_out_of_a_label(payload: str) -> None:
    benign = report(some.tainted(), "study: x", "a problem")

    poisoned = report(hostile_sample(payload), f"study: {payload}", f"{payload} a problem")

    assert bones(poisoned) == bones(benign)


def test_the_bones_show_it_when_a_label_breaks_out() -> None:
    benign = report(some.tainted(), "", "a problem")
    escaped = "docker"
    assert bones(benign.replace(escaped, f"<img src=x>{escaped}", 1)) != bones(benign)


def test_a_hostile_label_is_still_there_to_read() -> None:
    payload = PAYLOADS[0]
    tree = read_page(report(hostile_sample(payload), payload, payload))
    assert tree.all("h1")[0].text().startswith(f"{payload}docker is slower than {payload}bare")
    assert tree.all("pre")[0].text() == payload


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_hostile_name_of_a_metric_stays_text(payload: str) -> None:
    metric = f"{payload}_s"
    sample = some.normal()
    poisoned = replace(
        sample.weighing,
        metric=metric,
        comparisons=(some.comparison(metric=metric),),
        others=(some.comparison(metric=f"{metric}_bytes"),),
    )
    records = [replace(record, metrics={metric: 1.0}) for record in sample.records]
    tree = read_page(render(poisoned, records, some.GENERATED))
    assert _foreign(tree) == ["script", "script"]  # ours: the charts, and what draws them


def _foreign(tree: Element) -> list[str]:
    return [
        each.tag
        for each in tree.inside()
        if each.tag in ("script", "img", "iframe", "b", "i") or "onload" in each.attributes
    ]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_hidden_sign_reaches_the_page(payload: str) -> None:
    page = report(hostile_sample(payload), payload, payload)
    page.encode("utf-8")
    assert not any(sign in page for sign in "\x00\x07\x1b\u202e\u2028\ud800")
