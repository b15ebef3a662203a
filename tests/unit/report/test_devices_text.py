"""The words and the figure about devices: at 80 columns, on the page, in Markdown, with labels that mean harm."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from functools import cache

import pytest

import some_weighings as some
from golden_files import assert_as_in_file
from hostile import PAYLOADS
from html_reading import read_page, without_drawings
from some_fleets import STUDY, Board, boards, trials
from tare.analysis.fleet.devices import devices_answer
from tare.analysis.fleet.findings import fleet_of_records
from tare.analysis.weighing import weigh
from tare.records.model import Record, StoreTrials
from tare.report.export import as_markdown
from tare.report.figure import Figure, compiled, safe_json
from tare.report.html import Page, page, render
from tare.report.sections import answer_text

ODD = Board("orin-6", slower=0.2, facts={"kernel": "4.9.1", "cpu.governor": "powersave"})
NANO = [Board(f"nano-{n}", type="nano", base_s=0.3, slower=n / 100) for n in range(1, 4)]
FLEET = [*boards(5, tau=0.005), ODD, *NANO]


class Kept:
    """As much of a store as a weighing reads."""

    def __init__(self, records: list[Record]) -> None:
        self.study, self._records = STUDY, records

    def records(self) -> list[Record]:
        return self._records

    def rehearsals(self) -> list[Record]:
        return []

    def states(self) -> dict[str, str]:
        return {each.trial: each.state for each in self._records}


def page_of(records: list[Record]) -> Page:
    return page(weigh(Kept(records)), records, some.GENERATED, "", ())  # type: ignore[arg-type]


def figure_of(records: list[Record]) -> Figure | None:
    return next((figure for figure in page_of(records).figures if figure.name == "devices"), None)


@pytest.mark.parametrize("width", [40, 80])
def test_a_fleet_is_told_in_these_words(width: int) -> None:
    text = answer_text(devices_answer(fleet_of_records([StoreTrials("store", trials(FLEET))], STUDY)), width)

    assert max(map(len, text.splitlines())) <= width
    assert_as_in_file(text, f"report/devices-{width}.txt")


def test_one_device_is_told_in_a_sentence() -> None:
    text = answer_text(devices_answer(fleet_of_records([StoreTrials("store", trials(boards(1)))], STUDY)), 80)

    assert text.splitlines()[0] == "fleet: 1 device (1 orin)."
    assert text.splitlines()[-1].startswith("note: There is one device here")


def test_the_page_has_a_section_with_its_tables() -> None:
    counts, outliers, *tables, notes = page_of(trials(FLEET)).devices

    assert counts.lines == ("weigh: 9 devices (6 orin, 3 nano).",)
    assert outliers.lines[0].startswith("orin-6 is an outlier among identical devices")
    assert [section.title for section in tables] == [
        "Median step: the effect of docker against bare",
        "Median step: each device among identical devices",
        "Median step: spread of bare, 54 trials",
        "Median step: spread of docker, 54 trials",
    ]
    assert notes.lines == ("Without orin-6 the spread between devices of 6.2 % becomes 0.9 % (bare).",)
    assert tables[0].lines[0].startswith("all devices (9): equivalent; the effect")
    assert all(len(row) == len(section.headers) for section in tables for row in section.rows)


def test_a_store_of_one_device_has_neither_section_nor_figure() -> None:
    for records in (trials(boards(1)), [replace(each, settings={"platform": "bare"}) for each in trials(boards(1))]):
        assert not page_of(records).devices
        assert figure_of(records) is None


def test_a_fleet_of_which_nothing_is_usable_has_a_page_all_the_same() -> None:
    broken = [replace(each, state="failed", metrics={}) for each in trials(boards(3))]

    assert not page_of(broken).devices


def test_without_scipy_the_section_says_so_and_the_rest_of_the_page_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    records = trials(FLEET)
    made = page_of(records)

    (sentence,) = made.devices[-1].lines
    assert sentence.startswith("how devices vary is computed with scipy: `pip install ")
    assert "devices" not in {figure.name for figure in made.figures}
    assert "how devices vary is computed with scipy" in render(weigh(Kept(records)), records, some.GENERATED)  # type: ignore[arg-type]


def test_the_figure_has_every_device_and_what_holds_over_them() -> None:
    figure = figure_of(trials(FLEET))

    assert figure is not None
    lanes = figure.chart["layer"][-1]["data"]["values"]
    assert [lane["lane"] for lane in lanes][:4] == ["all devices", "all orin", "all nano", "orin-1"]
    assert len(lanes) == 3 + 9
    assert figure.reading.startswith("Over 9 devices docker against bare is equivalent, +1.9 %")
    assert len(figure.rows) == 12
    assert "devices" in safe_json({figure.name: compiled(figure)})


def test_a_device_with_another_effect_is_drawn_as_unlike() -> None:
    records = trials([*boards(5, between=0.002), Board("odd", slower=-0.06, effect=0.16)])
    figure = figure_of(records)

    assert figure is not None
    kinds = {lane["lane"]: lane["kind"] for lane in figure.chart["layer"][-1]["data"]["values"]}
    assert [lane for lane, kind in kinds.items() if kind == "outlier among identical devices"] == ["odd"]


def test_where_nothing_is_compared_the_figure_shows_each_from_its_twins() -> None:
    figure = figure_of(trials([*boards(5), ODD], platforms=("bare",)))

    assert figure is not None
    assert figure.title == "Median step, each device in its type"
    assert figure.reading == "Outliers among identical devices: orin-6."
    assert "devices" in safe_json({figure.name: compiled(figure)})


def test_a_large_fleet_is_drawn_in_part_and_listed_in_full() -> None:
    figure = figure_of(trials(boards(70), blocks=2))

    assert figure is not None
    assert len(figure.chart["layer"][-1]["data"]["values"]) == 60
    assert figure.reading.endswith("The first 60 of 71 are drawn; the table has all.")
    assert len(figure.rows) == 71


def test_markdown_has_the_section() -> None:
    text = as_markdown(page_of(trials(FLEET)))

    assert "## Devices" in text
    assert "## Median step: each device among identical devices" in text
    assert "| orin-6 | orin | 12 |" in text


@cache
def bones(name: str) -> list[tuple[str, dict[str, str]]]:
    """The elements of the page of a fleet that has a device of this name, without what is meant to be spoken.

    Levels stand in the order of their names, so links to trials are compared without their numbers.
    """
    records = trials([*boards(3), replace(ODD, name=name, facts={"kernel": name})], blocks=2)
    page = render(weigh(Kept(records)), records, some.GENERATED)  # type: ignore[arg-type]
    tree = read_page(without_drawings(page))
    return [(each.tag, {key: _bone(key, value) for key, value in each.attributes.items()}) for each in tree.inside()]


def _bone(key: str, value: str) -> str:
    placed = key in ("aria-label", "content", "x", "x1", "x2", "cx", "width", "text-anchor") or key.startswith("data-")
    return "" if placed else re.sub(r"^(#?(?:trial|level))-\d+$", r"\1", re.sub(r"\bc\d+$", "c", value))


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_element_comes_out_of_a_devices_name(payload: str) -> None:
    assert bones(payload) == bones("orin-6")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_devices_name_does_not_steer_a_terminal(payload: str) -> None:
    devices = [*boards(4), replace(ODD, name=payload, type=payload, facts={"kernel": payload})]
    text = answer_text(devices_answer(fleet_of_records([StoreTrials("store", trials(devices, blocks=2))], STUDY)), 80)

    assert text.replace("\n", "").isprintable()
