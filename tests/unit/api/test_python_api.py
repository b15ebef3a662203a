"""`import tare`: the public names, and what each gives on a store that comes with tare."""

from __future__ import annotations

import builtins
import doctest
import importlib
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tare
from tare.api import results, studies
from tare.base.errors import ObstacleError, StudyError

KEPT = Path(__file__).parents[3] / "studies-results" / "cpu2" / "s0-seccomp.tare"
NAMES = ["Chart", "Result", "Stores", "Study", "Table", "TareError", "compare", "open", "study", "weigh"]


@pytest.fixture(scope="module")
def kept() -> results.Stores:
    return tare.open(KEPT)


def test_the_public_names_are_these() -> None:
    assert sorted(tare.__all__) == NAMES
    assert sorted(set(dir(tare)) - {"__version__"}) == NAMES
    assert all(getattr(tare, name).__doc__ for name in NAMES)


def test_every_public_function_and_method_has_types_and_a_docstring() -> None:
    for called in _public_callables():
        assert called.__doc__, called
        signature = inspect.signature(called)
        bare = [each.name for each in signature.parameters.values() if each.annotation is each.empty]
        assert bare in ([], ["self"]), called
        assert signature.return_annotation is not signature.empty, called


def _public_callables() -> list[Callable[..., Any]]:
    found = [getattr(tare, name) for name in NAMES]
    methods = [
        held for each in found if inspect.isclass(each) and not issubclass(each, Exception)
        for name, held in vars(each).items() if not name.startswith("_") and inspect.isfunction(held)
    ]  # fmt: skip
    return [each for each in found if inspect.isfunction(each)] + methods


@pytest.mark.parametrize("module", [results, studies, results])
def test_the_examples_run(module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies-results").symlink_to(KEPT.parents[1])
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        test.globs.update(tare=tare, open=builtins.open)
        runner.run(test)
    tried, failed = runner.summarize().attempted, runner.summarize().failed
    assert failed == 0
    assert tried > 0


def test_importing_tare_brings_nothing_heavy() -> None:
    code = "import sys, tare; print([name for name in ('numpy', 'pydantic', 'duckdb', 'click') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="weight"):
        tare.weight  # noqa: B018


def test_trials_are_a_table_with_units(kept: results.Stores) -> None:
    trials = kept.trials()
    assert len(trials) == len(list(trials)) > 0
    assert trials.units["metric.step_s"] == "s"
    assert set(trials["state"]) <= {"ok", "suspect", "invalid", "failed"}
    usable = kept.trials(usable=True)
    assert set(usable["state"]) <= {"ok", "suspect"}


def test_several_stores_are_told_apart(kept: results.Stores) -> None:
    other = KEPT.with_name("s0-phase-breakup.tare")
    both = tare.open(KEPT, other).trials()
    assert set(both["store"]) == {str(KEPT), str(other)}
    assert len(both) == len(kept.trials()) + len(tare.open(other).trials())


def test_readings_are_seconds_and_values_in_the_channels_unit(kept: results.Stores) -> None:
    channels = kept.channels()
    name, unit = channels["name"][0], channels["unit"][0]
    found = kept.readings(name)
    assert set(found.columns) == {"trial", "attempt", "t_s", "value"}
    assert found.units["t_s"] == "s"
    assert found.units.get("value", "") == unit
    with pytest.raises(StudyError, match="channel"):
        kept.readings("no such channel")


def test_a_comparison_is_the_verb_s(kept: results.Stores) -> None:
    from click.testing import CliRunner

    from tare.cli import tare as verbs

    found = kept.compare()
    printed = CliRunner().invoke(verbs, ["compare", str(KEPT)]).stdout
    assert str(found).strip() == printed.partition("more:")[0].strip()
    assert repr(found).startswith("<tare.Result")
    assert "<iframe" in found._repr_html_()
    assert found.as_json()["comparisons"]


def test_of_several_levels_there_is_no_single_verdict(tmp_path: Path) -> None:
    rows = [f"{level},{run},{1 + level}" for run in range(8) for level in range(3)]
    table = tmp_path / "three.csv"
    table.write_text("\n".join(["level,run,step_s", *rows]))
    found = tare.compare(table, by="level", metric="step_s", block="run", order="shuffled")
    assert len(found.comparisons) == 2
    with pytest.raises(StudyError, match="comparisons"):
        found.verdict  # noqa: B018
    assert "2 comparisons" in repr(found)


def test_a_table_is_compared_and_shown(tmp_path: Path) -> None:
    rows = [f"{level},{run},{1 + 0.2 * level}" for run in range(8) for level in range(2)]
    table = tmp_path / "two.csv"
    table.write_text("\n".join(["level,run,step_s", *rows]))
    found = tare.compare(table, by="level", metric="step_s", block="run", order="shuffled")
    assert found.verdict == "slower"
    assert found.effect == pytest.approx(0.2)
    assert repr(found) == "<tare.Result step_s: slower +20.0% [+20.0%, +20.0%]>"
    assert "slower" in found._repr_html_()
    with pytest.raises(StudyError, match="nothing to draw"):
        found.plot()


def test_a_figure_is_drawn_and_saved(kept: results.Stores, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    found = kept.compare()
    chart = found.plot()
    assert chart.svg().startswith("<svg")
    assert chart.save(tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(StudyError, match=r"\.svg"):
        chart.save(tmp_path / "figure.gif")
    with pytest.raises(StudyError, match="figure"):
        found.plot("no such figure")


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ObstacleError, match="pip install polars"):
        results.Table({"a": [1]}).to_polars()


def test_a_study_needs_a_file_or_fields() -> None:
    with pytest.raises(StudyError, match="either"):
        tare.study()
    with pytest.raises(StudyError, match="plattform"):
        tare.study(plattform=["bare"], workload={"spin": {}})


def test_what_cannot_be_weighed_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StudyError, match="nothing to weigh"):
        tare.weigh("", progress=False)
    with pytest.raises(StudyError, match="built-in workload"):
        tare.weigh("lenet55", progress=False)
    with pytest.raises(StudyError, match="`setup`"):
        tare.weigh("python train.py", setup=dict, progress=False)
    with pytest.raises(StudyError, match="image"):
        tare.weigh(dict, image="a", progress=False)
    assert not list(tmp_path.iterdir())


def test_a_callable_that_nobody_can_import_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(StudyError, match="pip install cloudpickle"):
        studies.reference(lambda: None)
