from __future__ import annotations

from dataclasses import replace

import some_weighings as some
from figure_stores import parts_figures
from tare.analysis.answer import sentences_of
from tare.analysis.sentences import NO_COMMON_BLOCK, about
from tare.report.html import answers_of, notes_of
from tare.report.layout import MOST_LANES, legend, level_names, not_all_drawn, some_of, varying_names


def test_a_label_is_taken_as_it_is_and_a_number_of_a_table_is_named_with_its_column() -> None:
    names = level_names(["4", "LeNet-5 training in docker", "none"], "workload.workers")
    assert list(names.values()) == ["4 workers", "LeNet-5 training in docker", "workers none"]


def test_long_names_are_shortened_and_still_told_apart() -> None:
    levels = [f"{'a' * 60}{number}{'b' * 60}" for number in range(3)]
    names = level_names(levels, "platform")
    assert len(set(names.values())) == 3
    assert level_names(["x" * 100], "platform") == {"x" * 100: f"{'x' * 24}…{'x' * 23}"}


def test_a_legend_has_as_many_columns_as_a_telephone_holds_and_none_where_it_would_be_a_list() -> None:
    assert (legend(["bare", "docker"]) or {})["columns"] == 4
    assert (legend(["resnet18, data cifar10, workers 4"]) or {})["columns"] == 1
    assert legend([str(number) for number in range(40)]) is None


def test_a_sentence_names_a_few_and_counts_the_rest() -> None:
    assert some_of(["a", "b"]) == "a, b"
    assert some_of(["a, 1", "b", "c", "d", "e"]) == "a, 1; b; c and 2 more"


def test_of_many_levels_the_first_are_drawn_and_the_table_has_all() -> None:
    many = {f"level {n}": f"#level-{n}" for n in range(40)}
    medians = {level: some.weighing().medians["bare"] for level in many}
    figure = parts_figures(replace(some.weighing(), medians=medians, phases={}), hrefs=many)["step-parts"]
    assert len(figure.rows) == 40
    assert len(figure.chart["layer"][1]["data"]["values"]) == MOST_LANES
    assert figure.reading.endswith(not_all_drawn(40))


def test_many_answers_of_the_same_word_are_one() -> None:
    many = tuple(some.comparison(f"l{n}", verdict="slower" if n < 8 else "equivalent") for n in range(10))
    slower, equivalent = sentences_of(replace(some.weighing(), comparisons=many))
    figures = "+1.6 % [+0.4, +2.9]"
    assert slower == f"l0, l1, l2 and 5 more are slower than bare (median step {figures})."
    assert equivalent.startswith("l8 and l9 are slower than bare, by less than the margin of 5 %")
    assert answers_of(replace(some.weighing(), comparisons=many)) == []  # the table of verdicts has them


def test_a_note_that_many_levels_share_is_told_once() -> None:
    many = tuple(some.comparison(f"l{n}", notes=(about(f"l{n}", NO_COMMON_BLOCK),)) for n in range(10))
    told = notes_of(replace(some.weighing(), comparisons=many, notes=("another",)))
    assert any(note.startswith("all 10: no block has both sides") for note in told)
    assert "another" in told
    one = replace(many[9], notes=())
    (told, *_) = notes_of(replace(some.weighing(), comparisons=(*many[:9], one)))
    assert told.startswith("l0, l1, l2 and 6 more: no block has both sides")


def test_a_sentence_names_levels_by_what_differs_and_cuts_nothing() -> None:
    cache = "page cache cold in every epoch"
    levels = [f"{model} training, 1 worker, {cache}" for model in ("LeNet-5", "MobileNetV3-L")]
    assert list(varying_names([*levels, f"{levels[0]}, cores 0-3"], "workload.workers").values()) == [
        "LeNet-5 training", "MobileNetV3-L training", "LeNet-5 training, cores 0-3"
    ]  # fmt: skip
