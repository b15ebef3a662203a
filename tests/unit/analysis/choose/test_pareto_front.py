"""The front of configurations worth choosing from, how sure it is, and what a default loses.

A note where rows of several models are taken for trials of one configuration.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tare.analysis.choose.columns import mixed_notes
from tare.analysis.choose.configurations import assignments
from tare.analysis.choose.front import front_of_singles, pareto
from tare.analysis.choose.pareto import _on_front, on_front
from tare.analysis.observations import table_observations
from tare.analysis.tables.table import Table
from tare.base.errors import StudyError
from tare.cli import tare as verbs
from tare.records.model import TrialRow


def rows(points, trials=1, noise=0.0, group=None, blocks=False, seed=1):
    """Observations of modes 0, 1 ... at these (ms, joules), each a few times."""
    chance = np.random.default_rng(seed)
    made = []
    for mode, (ms, joules) in enumerate(points):
        for trial in range(trials):
            factor = float(np.exp(chance.normal(0, noise)))
            values = {"ms": ms * factor, "joules": joules * factor}
            block = str(trial) if blocks else None
            made.append(TrialRow.foreign({"mode": float(mode)}, values, f"{mode}.{trial}", group=group, block=block))
    return made


def modes(points):
    return [point.settings["mode"] for point in points if point.on_front]


def test_the_papers_rule_keeps_a_point_whose_time_is_below_the_last_kept():
    points = [(10.0, 1.0), (9.0, 2.0), (9.5, 3.0), (5.0, 4.0), (5.0, 5.0)]

    (front,) = pareto(rows(points), ["joules", "ms"])

    assert modes(front.points) == [0.0, 1.0, 3.0]
    assert front.configurations == 5


def test_points_that_are_equal_in_all_figures_stay_together():
    (front,) = pareto(rows([(1.0, 1.0), (1.0, 1.0), (2.0, 2.0)]), ["ms", "joules"])

    assert modes(front.points) == [0.0, 1.0]


def test_each_group_has_a_front_of_its_own():
    both = [*rows([(1.0, 2.0), (2.0, 3.0)], group="lenet"), *rows([(5.0, 5.0)], group="vgg")]

    lenet, vgg = pareto(both, ["ms", "joules"])

    assert (lenet.group, modes(lenet.points)) == ("lenet", [0.0])
    assert (vgg.group, modes(vgg.points)) == ("vgg", [0.0])


def test_what_was_measured_once_has_no_uncertainty_and_says_so():
    (front,) = pareto(rows([(1.0, 2.0), (2.0, 1.0)]), ["ms", "joules"])

    assert [point.front_share for point in front.points] == [None, None]
    assert front.resamples == 0
    assert "measured once" in front.notes[0]


def test_a_clear_front_is_on_the_front_in_every_resample():
    points = [(1.0, 4.0), (2.0, 2.0), (4.0, 1.0), (8.0, 8.0)]

    (front,) = pareto(rows(points, trials=8, noise=0.01), ["ms", "joules"])

    assert [point.front_share for point in front.points] == [1.0, 1.0, 1.0]
    assert [point.n for point in front.points] == [8, 8, 8]
    assert front.points[0].figures["ms"].low is not None


def test_two_modes_that_noise_cannot_tell_apart_share_the_front():
    points = [(1.0, 1.0), (1.003, 1.003)]

    (front,) = pareto(rows(points, trials=8, noise=0.02), ["ms", "joules"])

    shares = [point.front_share for point in front.points]
    assert len(shares) == 2 and all(0.05 < share < 0.95 for share in shares)


def test_blocks_that_move_all_modes_alike_do_not_blur_the_front():
    chance = np.random.default_rng(5)
    made = []
    for block in range(8):
        weather = float(np.exp(chance.normal(0, 0.2)))
        for mode, (ms, joules) in enumerate([(1.0, 1.0), (1.01, 1.01)]):
            values = {"ms": ms * weather, "joules": joules * weather}
            made.append(TrialRow.foreign({"mode": float(mode)}, values, f"{mode}.{block}", block=str(block)))

    (front,) = pareto(made, ["ms", "joules"])

    assert [(point.settings["mode"], point.front_share) for point in front.points] == [(0.0, 1.0)]


def test_a_default_that_is_beaten_is_told_by_what_and_how_much_it_loses():
    points = [(1.0, 1.0), (1.2, 1.5), (0.5, 3.0)]

    (front,) = pareto(rows(points, trials=8, noise=0.01), ["ms", "joules"], defaults=[assignments("mode=1")])

    (default,) = front.defaults
    assert default.dominated_by is not None and default.dominated_by.settings == {"mode": 0.0}
    assert default.dominated_share == 1.0
    assert default.loss["joules"].value == pytest.approx(0.5, abs=0.03)
    assert default.loss["ms"].low < 0.2 < default.loss["ms"].high


def test_a_default_on_the_front_loses_nothing():
    (front,) = pareto(rows([(1.0, 2.0), (2.0, 1.0)], trials=6), ["ms", "joules"], defaults=[{"mode": 1.0}])

    (default,) = front.defaults
    assert default.dominated_by is None
    assert default.loss == {}
    assert default.dominated_share == 0.0


def test_a_default_that_was_not_measured_is_answered_with_the_nearest():
    with pytest.raises(StudyError, match=r"mode=7 was not measured. The nearest is mode=1"):
        pareto(rows([(1.0, 2.0), (2.0, 1.0)]), ["ms", "joules"], defaults=[{"mode": 7.0}])


def test_the_nearest_configuration_is_near_in_every_setting_by_its_own_spread():
    measured = [{"gpu_mhz": mhz, "cores": cores} for mhz in (345.0, 1785.0, 1980.0) for cores in (1.0, 8.0)]
    found = [
        replace(row, settings=settings)
        for row, settings in zip(rows([(1.0 + place, 9.0 - place) for place in range(6)]), measured, strict=True)
    ]

    with pytest.raises(StudyError, match=r"The nearest is gpu_mhz=1980, cores=8\."):
        pareto(found, ["ms", "joules"], defaults=[{"gpu_mhz": 1981.0, "cores": 8.0}])
    with pytest.raises(StudyError, match=r"The nearest is gpu_mhz=1980, cores=1\."):
        pareto(found, ["ms", "joules"], defaults=[{"gpu_mhz": 1900.0, "cores": 2.0}])


def test_a_default_may_name_a_setting_by_its_end_where_only_one_ends_so():
    found = [replace(row, settings={"workload.mode": row.settings["mode"]}) for row in rows([(1.0, 2.0), (2.0, 1.0)])]
    (front,) = pareto(found, ["ms", "joules"], defaults=[{"mode": 1.0}])

    assert front.defaults[0].point.settings == {"workload.mode": 1.0}
    two = [replace(row, settings={**row.settings, "control.mode": 1.0}) for row in found]
    with pytest.raises(StudyError, match=r"No setting 'mode'\..* Available: workload.mode, control.mode"):
        pareto(two, ["ms", "joules"], defaults=[{"mode": 1.0}])


def test_shares_do_not_depend_on_the_order_of_rows():
    found = rows([(1.0, 2.0), (1.01, 1.98), (1.02, 1.97), (2.0, 1.0)], trials=6, noise=0.05)
    shuffled = [found[place] for place in np.random.default_rng(2).permutation(len(found))]
    defaults = [{"mode": 1.0}]

    one, other = (pareto(each, ["ms", "joules"], defaults=defaults)[0] for each in (found, shuffled))
    assert one == other
    assert 0 < one.points[0].front_share < 1


def test_copied_rows_are_not_taken_for_repeats_in_silence():
    once = rows([(1.0, 2.0), (2.0, 1.0)])

    assert any("Were rows copied?" in note for note in pareto(once + once, ["ms", "joules"])[0].notes)
    real = rows([(1.0, 2.0), (2.0, 1.0)], trials=2, noise=0.01)
    assert not any("Were rows copied?" in note for note in pareto(real, ["ms", "joules"])[0].notes)


def test_a_default_that_fits_several_configurations_must_be_named_whole():
    made = [TrialRow.foreign({"mhz": 1.0, "cores": float(n)}, {"ms": 1.0, "joules": 1.0}, f"row {n}") for n in range(3)]

    with pytest.raises(StudyError, match="fits 3 configurations"):
        pareto(made, ["ms", "joules"], defaults=[{"mhz": 1.0}])


@pytest.mark.parametrize("written", ["mode", "mode=", "=3", "mode=1,,"])
def test_a_default_that_is_not_a_list_of_settings_is_refused(written):
    with pytest.raises(StudyError, match="write it like"):
        assignments(written)


def test_one_figure_is_no_front():
    with pytest.raises(StudyError, match="two figures or more"):
        pareto(rows([(1.0, 2.0)]), ["ms", "ms"])


def test_rows_that_lack_a_figure_are_left_out_and_counted():
    made = [*rows([(1.0, 2.0)]), TrialRow.foreign({"mode": 9.0}, {"ms": 0.1}, "row 9")]

    (front,) = pareto(made, ["ms", "joules"])

    assert front.configurations == 1
    assert "1 of 2 rows lack one of the figures" in front.notes[0]


def test_three_figures_at_once():
    chance = np.random.default_rng(2)
    made = [
        TrialRow.foreign({"mode": float(n)}, dict(zip("abc", chance.random(3).tolist(), strict=True)), f"row {n}")
        for n in range(200)
    ]

    (front,) = pareto(made, ["a", "b", "c"])

    figures = np.array([[row.metrics[name] for name in "abc"] for row in made])
    on_it = {n for n, mine in enumerate(figures) if not (figures < mine).all(axis=1).any()}
    assert {point.settings["mode"] for point in front.points} == on_it


def test_a_hundred_thousand_modes_take_seconds():
    chance = np.random.default_rng(4)
    figures = chance.random((100_000, 2)).tolist()
    made = [
        TrialRow.foreign({"mode": float(n)}, {"ms": a, "joules": b}, f"row {n}") for n, (a, b) in enumerate(figures)
    ]

    begun = time.process_time()
    (front,) = pareto(made, ["ms", "joules"])

    assert time.process_time() - begun < 60
    assert front.configurations == 100_000


@pytest.mark.parametrize("trials", [1, 8])
def test_a_loss_against_nothing_is_not_a_share(trials):
    (front,) = pareto(rows([(1.0, 0.0), (2.0, 1.0)], trials), ["ms", "joules"], defaults=[{"mode": 1.0}])

    assert set(front.defaults[0].loss) == {"ms"}
    json.dumps(front.as_json(), allow_nan=False)


CELLS = st.sampled_from(["1", "1.0", " 2", "3e0", "1_0", "x", "", None, "nan", "-1"])


@given(st.lists(st.tuples(CELLS, CELLS, st.integers(0, 4).map(str), st.integers(0, 4).map(str)), min_size=1))
def test_a_table_is_answered_by_columns_as_it_is_row_by_row(cells):
    columns = dict(zip(("mode", "mhz", "ms", "joules"), map(list, zip(*cells, strict=True)), strict=True))
    table = Table(Path("t.csv"), columns)
    found = front_of_singles(table, ["mode", "mhz"], ["ms", "joules"])
    different = len(set(zip(columns["mode"], columns["mhz"], strict=True))) == len(cells)
    if found is None:
        assert not different or {"1_0", "", None, "nan"} & {*columns["mode"], *columns["mhz"]} or "1.0" in str(cells)
        return
    rows = table_observations(table, settings=["mode", "mhz"], values=["ms", "joules"])
    assert found == pareto(rows, ["ms", "joules"], source=table.path)


@pytest.mark.parametrize("name", ["workload.model", "batch"])
def test_rows_of_other_work_are_looked_at_one_by_one(name):
    table = Table(Path("t.csv"), {name: ["1", "2"], "ms": ["1", "2"], "joules": ["2", "1"]})
    assert front_of_singles(table, [name], ["ms", "joules"]) is None


@given(st.integers(0, 99), st.integers(2, 4), st.sampled_from([0, 3, 300, 1e300]))
def test_of_many_points_those_that_one_beats_are_not_sorted_and_the_front_is_the_same(seed, figures, levels):
    points = np.random.default_rng(seed).random((1200, figures)) ** 3
    points = np.floor(points * levels) if levels else points * 0
    assert (on_front(points) == _on_front(points)).all()


NOTE = "column 'model' differs within configurations: --group model keeps its values apart."
HEAD = "model,mode,run,seen,ms,joules\n"
MIXED = HEAD + "lenet5,1,a,5,1.0,2.0\nvgg11,1,b,6,9.0,8.0\nlenet5,2,c,7,2.0,1.0\nvgg11,2,d,8,8.0,9.0\n"
APART = HEAD + "lenet5,1,a,5,1.0,2.0\nlenet5,1,b,6,1.1,2.1\nvgg11,2,c,7,2.0,1.0\nvgg11,2,d,8,2.1,1.1\n"


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    (tmp_path / "mixed.csv").write_text(MIXED)
    return tmp_path / "mixed.csv"


def test_a_text_column_that_differs_within_a_configuration_is_named_and_numbers_and_ids_are_not(mixed: Path) -> None:
    assert mixed_notes(mixed, ["mode"], None) == [NOTE]


def test_nothing_is_said_where_the_values_are_kept_apart(mixed: Path, tmp_path: Path) -> None:
    assert mixed_notes(mixed, ["mode"], "model") == []
    assert mixed_notes(mixed, ["mode", "model"], None) == []
    (tmp_path / "apart.csv").write_text(APART)
    assert mixed_notes(tmp_path / "apart.csv", ["mode"], None) == []


def test_a_store_is_not_looked_at(tmp_path: Path) -> None:
    assert mixed_notes(tmp_path, ["mode"], None) == []


@pytest.mark.parametrize("verb", [("front", "--minimise", "ms,joules"), ("recommend", "--minimise", "joules")])
def test_both_verbs_say_it(verb: tuple[str, ...], mixed: Path) -> None:
    name, *options = verb
    words = ["choose", name, str(mixed), "--settings", "mode", *options]

    assert NOTE in _said(words)
    assert NOTE not in _said([*words, "--group", "model"])


def _said(words: list[str]) -> str:
    done = CliRunner().invoke(verbs, words)
    assert done.exit_code == 0, done.output
    return " ".join(done.stderr.split())
