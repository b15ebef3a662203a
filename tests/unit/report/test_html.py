from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
from dataclasses import replace

import pytest

import some_weighings as some
from golden_files import assert_as_in_file
from html_reading import Element, read_page
from tare.analysis.model import Measurement, Weighing
from tare.report.html import fine, render


def page_of(sample: some.Sample, **more: object) -> str:
    return render(sample.weighing, sample.records, some.GENERATED, **more)  # type: ignore[arg-type]


def read(name: str) -> Element:
    return read_page(page_of(some.SAMPLES[name](), study_text=some.STUDY_TEXT))


@pytest.fixture(params=some.SAMPLES)
def any_page(request: pytest.FixtureRequest) -> str:
    return page_of(some.SAMPLES[request.param](), study_text=some.STUDY_TEXT)


def test_the_file_asks_for_nothing_and_runs_only_the_library(any_page: str) -> None:
    tree = read_page(any_page)
    ours = re.sub(r"<script.*?</script>", "", any_page, flags=re.DOTALL)  # the library names addresses in its comments
    assert not re.search(r"(https?:|//|url\((?!#)|@import)", ours)
    assert [each.attributes for each in tree.all("script")] in (
        [{}],
        [{"type": "application/json", "id": "charts"}, {}],
    )
    for element in tree.inside():
        assert "style" not in element.attributes
        assert not [name for name in element.attributes if name.startswith("on")]
        assert element.attributes.get("href", "#").startswith(("#", "data:,"))
        assert "src" not in element.attributes


def digest_of(page: str, element: str) -> str:
    found = re.search(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
    return "" if found is None else base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()


def test_the_policy_allows_the_page_s_own_style_and_script_and_nothing_else(any_page: str) -> None:
    script = f"script-src 'sha256-{found}'; " if (found := digest_of(any_page, "script")) else ""
    policy = [
        meta.attributes["content"]
        for meta in read_page(any_page).all("meta")
        if meta.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy == [
        f"default-src 'none'; {script}style-src 'sha256-{digest_of(any_page, 'style')}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    ]
    assert any_page.index("Content-Security-Policy") < any_page.index("<style>")


def test_every_link_leads_to_one_place_on_the_page(any_page: str) -> None:
    tree = read_page(any_page)
    places = [element.attributes["id"] for element in tree.inside() if "id" in element.attributes]
    assert len(places) == len(set(places))
    targets = {link.attributes["href"].removeprefix("#") for link in tree.all("a")}
    assert targets <= set(places)
    referred = {name for each in tree.inside() for name in each.attributes.get("aria-labelledby", "").split()}
    assert referred <= set(places)


def test_every_figure_has_words_for_those_who_do_not_see_it_and_its_numbers(any_page: str) -> None:
    for figure in read_page(any_page).all("figure"):
        (chart,) = figure.all("div", role="img")
        assert chart.attributes["aria-label"]
        assert figure.all("figcaption")[0].text()
        assert figure.all("details")[0].all("td")


@pytest.mark.parametrize("name", ["normal", "tainted", "several", "empty"])
def test_the_first_screen_is_as_in_the_golden_file(name: str) -> None:
    page = page_of(some.SAMPLES[name]())
    section = re.search(r'<section id="answer".*?</section>', page, re.DOTALL)
    assert section is not None
    assert_as_in_file(re.sub(r"\n{2,}", "\n", section[0]), f"report/answer-{name}.html")


def test_the_first_screen_says_what_is_missing_and_why() -> None:
    answer = read("half_finished").all("details", id="verdicts")[0].text()
    assert "6 of 36 trials; 3 failed; 27 not run yet" in answer
    assert "docker, block 0: failed: The image was not found." in answer
    assert "no usable trial" in answer


def test_an_empty_store_has_a_page_that_says_so() -> None:
    tree = read("empty")
    assert tree.all("h1", class_="verdict")[0].text().endswith(": nothing to compare yet")
    assert "0 of 24 trials; 24 not run yet" in tree.text()
    assert tree.all("figure") == []
    assert "No trial has been run yet." in tree.text()


def test_one_trial_is_enough_for_a_page() -> None:
    only = some.records()[:1]
    alone = replace(some.empty().weighing, counts={"planned": 24, "ok": 1}, medians={}, by="platform")
    value = Measurement("bare", only[0].metrics["step_s"], "0", only[0].twin, only[0].trial)
    tree = read_page(render(replace(alone, measurements=(value,)), only, some.GENERATED))
    assert len(tree.all("figure")) == 1
    assert len(tree.all("table", class_="trials")[0].all("tr")) == 2


def test_where_n_is_too_small_that_is_said() -> None:
    assert "n = 3: too small for 95 %" in read("too_few").text()


def test_without_the_library_a_report_has_its_tables_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tare.report.html.available", lambda: False)
    page = page_of(some.normal())
    tree = read_page(page)
    assert "charts need the library vl-convert" in tree.text()
    assert len(tree.all("script")) == 1  # ours: it filters and sorts
    assert "vega" not in page
    assert tree.all("table", class_="effects")[0].all("svg", class_="lane")  # the effects need no library
    assert all("open" in details.attributes for figure in tree.all("figure") for details in figure.all("details"))


def test_what_taints_the_verdict_stands_before_the_table() -> None:
    answer = read("tainted").all("section", id="answer")[0]
    assert "torch.version: docker has 2.12.1" in answer.all("details", class_="alarm")[0].text()
    assert "(tainted)" in answer.all("h1", class_="verdict")[0].text()
    assert read("normal").all("details", class_="alarm") == []


def test_parity_is_claimed_only_where_every_side_left_a_fingerprint() -> None:
    assert "No difference that matters was found" in read("normal").text()
    sample = some.normal()
    blind = [replace(record, facts={}) for record in sample.records]
    assert (
        "it is not known whether they ran the same software"
        in read_page(page_of(replace(sample, records=blind))).text()
    )


def test_parity_is_also_known_where_the_baseline_has_a_longer_name_than_the_factor_s() -> None:
    sample = some.normal()
    longer = {"bare": "bare, batch=16", "docker": "docker, batch=16"}
    renamed = replace(
        sample.weighing,
        comparisons=(some.comparison(longer["docker"], against=longer["bare"]),),
        measurements=tuple(replace(each, level=longer[each.level]) for each in sample.weighing.measurements),
    )
    assert "No difference that matters was found" in read_page(page_of(some.Sample(renamed, sample.records))).text()


def test_the_verdict_s_numbers_lead_to_the_trials_of_their_level() -> None:
    tree = read("normal")
    median = tree.all("table", class_="verdicts")[0].all("a")
    assert [link.attributes["href"] for link in median if link.text() == "1.87 ms"] == ["#level-1"]
    group = tree.all("tbody", id="level-1")[0]
    assert {row.all("td")[1].text() for row in group.all("tr")} == {"docker"}


def test_a_lost_trial_is_linked_and_listed() -> None:
    tree = read("tainted")
    lost = [link for link in tree.all("details", id="verdicts")[0].all("a") if "swapped" in link.text()]
    row = tree.all("tr", id=lost[0].attributes["href"].removeprefix("#"))[0]
    assert row.holds("class", "unused")
    assert "The machine swapped 12 pages." in row.text()


def test_of_two_attempts_at_a_trial_only_the_newest_usable_one_counts() -> None:
    sample = some.normal()
    first = replace(sample.records[0], metrics={**sample.records[0].metrics, "step_s": 1.0})
    again = replace(sample.records[0], attempt=2)
    tree = read_page(page_of(some.Sample(sample.weighing, [first, again, *sample.records[1:]])))
    rows = [row for row in tree.all("table", class_="trials")[0].all("tr") if row.text().startswith(first.trial[:8])]
    assert [row.holds("class", "unused") for row in rows] == [True, False]
    assert "attempt 2" in rows[1].text()


def test_a_table_without_a_store_makes_a_page_too() -> None:
    values = tuple(
        Measurement(level, 1.0 + 0.01 * block, str(block), trial=f"row {block}-{level}")
        for block in range(6)
        for level in ("bare", "docker")
    )
    bare = Weighing("mine.csv", "docker vs bare", "platform", "bare", "value", (some.comparison(metric="value"),))
    tree = read_page(render(replace(bare, measurements=values, counts={"planned": 12, "ok": 12}), [], some.GENERATED))
    assert len(tree.all("figure", id="figure-trials-by-block")) == 1
    assert "No software fingerprint was recorded." in tree.text()


def test_what_differs_between_the_sides_comes_first_in_the_software() -> None:
    rows = [row for row in read("normal").all("details", id="origin")[0].all("tr") if row.holds("class", "differs")]
    assert [row.text() for row in rows] == ["seccompbare 0docker 2"]


def test_the_study_the_device_the_versions_and_the_store_s_problems_are_in_it() -> None:
    text = read_page(page_of(some.normal(), study_text=some.STUDY_TEXT, problems=["trial abc is damaged."])).text()
    for said in ("study: weigh", "Neoverse-N1", "tare 0.1.0", some.GENERATED, "trial abc is damaged.", "23.3 GiB"):
        assert said in text


def test_the_lines_of_the_study_keep_their_indent() -> None:
    assert "\n  torch_train: {model: lenet5" in page_of(some.normal(), study_text=some.STUDY_TEXT)


def test_figures_are_set_with_a_true_minus_and_kept_with_their_unit() -> None:
    assert fine("1.84 ms -> -0.4 % [-0.4, +2.9] of s-1") == "1.84\xa0ms → −0.4\xa0% [−0.4, +2.9] of s-1"


def test_a_thousand_trials_make_a_page_of_reasonable_size() -> None:
    many = some.records(blocks=340)
    page = render(some.weighing(many), many, some.GENERATED)
    assert len(many) > 1000
    assert len(page.encode()) < 2_000_000


def test_a_long_list_is_folded_after_its_first_few_and_nothing_is_lost() -> None:
    notes = tuple(f"note {number}." for number in range(20))
    sample = some.normal()
    page = page_of(replace(sample, weighing=replace(sample.weighing, notes=notes)))
    verdicts = read_page(page).all("details", id="verdicts")[0]
    folded = [each for each in verdicts.all("details") if each.all("summary")[0].text() == "16 more"]
    assert len(folded) == 1
    assert all(note in verdicts.text() for note in notes)


def test_many_verdicts_are_one_sentence_and_a_lane_each() -> None:
    words = ("slower", "equivalent", "equivalent", "cannot_tell", "equivalent")
    many = tuple(
        some.comparison(f"level {number}", verdict=words[number % 5], effect=number / 100) for number in range(200)
    )
    sample = some.normal()
    page = page_of(replace(sample, weighing=replace(sample.weighing, comparisons=many, others=())))
    answer = read_page(page).all("section", id="answer")[0]
    (told,) = answer.all("h1", class_="verdict")
    assert told.text().startswith("level 0, level 5, level 10 and 37 more are slower than bare")
    lanes = answer.all("svg", class_="lane")
    assert len(lanes) == 200
    assert "level 199: +199\xa0%" in lanes[0].attributes["aria-label"]  # the largest effect first


def test_jobs_are_panels_and_their_levels_are_never_on_one_chart() -> None:
    sample = jobs_sample()
    tree = read_page(page_of(sample))
    assert [each.text() for each in tree.all("th", scope="rowgroup")] == []  # a level each: the job names the lane
    lanes = tree.all("table", class_="effects")[0].all("tr", class_="level")
    assert ["LeNet-5 training" in lanes[0].text(), "ResNet-18 training" in lanes[1].text()] == [True, True]
    drawn = [each.attributes["id"] for each in tree.all("figure")]
    assert {"figure-trials-by-block-lenet-5-training", "figure-trials-by-block-resnet-18-training"} <= set(drawn)
    assert not any("-" not in name.removeprefix("figure-") for name in drawn if "trials-by-block" in name)


def jobs_sample() -> some.Sample:
    """Two models, each on bare metal and in a container."""
    trials, comparisons, values = [], [], []
    for model, title in (("lenet5", "LeNet-5"), ("resnet18", "ResNet-18")):
        names = {"bare": f"{title} training on bare metal", "docker": f"{title} training in docker"}
        for each in some.records(blocks=6):
            made = replace(
                each, trial=f"{each.trial[:12]}{model[:3]}", settings={**each.settings, "workload.model": model}
            )
            trials.append(made)
            level = names[each.settings["platform"]]
            values.append(Measurement(level, made.metrics["step_s"], str(made.block), made.twin, made.trial))
        comparisons.append(some.comparison(names["docker"], against=names["bare"]))
    known = some.weighing(trials, comparisons=tuple(comparisons), others=(), measurements=tuple(values), medians={},
                          phases={}, differences=())  # fmt: skip
    return some.Sample(known, trials)


def test_a_level_has_one_colour_in_all_charts_and_a_row_that_of_its_verdict() -> None:
    page = page_of(jobs_sample())
    lanes = read_page(page).all("table", class_="effects")[0].all("circle", class_="point")
    assert [each.attributes["class"] for each in lanes] == ["point is-equivalent"] * 2
    assert set(re.findall(r'(?:fill|stroke)="var\(--level-(\d+)\)"', page)) == {"0", "1"}  # docker, whatever the job


def test_what_goes_beyond_the_axis_has_an_arrow() -> None:
    far = some.comparison("odd", effect=0.02, low=-0.9, high=9.0, verdict="cannot_tell")
    sample = some.normal()
    page = page_of(replace(sample, weighing=replace(sample.weighing, comparisons=(some.comparison(), far))))
    assert (
        "\N{BLACK RIGHT-POINTING SMALL TRIANGLE}" in page.partition('<table class="effects')[2].partition("</table")[0]
    )
    assert "goes on beyond the axis" in page
    assert "goes on beyond the axis" not in page_of(sample)


def test_a_report_does_not_load_the_papers_tables():
    """Their import, with pydantic's, takes a fifteenth of the CPU time of a short report."""
    script = "import sys, tare.report.html, tare.papers.pages.claims; print({'pydantic'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)

    assert done.stdout == "set()\n"
