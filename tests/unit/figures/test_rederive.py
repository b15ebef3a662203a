"""Figures of sealed trials, made again from what was sealed with them; and what is found where somebody edited one."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recorded_stores
from some_records import draft
from tare.base.units import Channel
from tare.figures.rederive import Rederived, rederive
from tare.parts.find import find
from tare.records.model import Record
from tare.records.parquet import TableFiles, TableName
from tare.records.sealed import manifest_for
from tare.records.spool import SpoolWriter
from tare.records.store import Store

MACHINE = Path(__file__).parents[2] / "machine"
WORK, WITHOUT_RERUNS = MACHINE / "steps_of_work.py", MACHINE / "without_reruns.py"
OF_ENERGY = ("energy_", "power_mean_w")
COUNTED = {"wall_s", "cpu_s", "minor_faults", "major_faults", "voluntary_switches", "involuntary_switches",
           "max_rss_bytes"}  # fmt: skip


def looked(root: Path) -> list[Rederived]:
    with Store.open(root) as store:
        return [rederive(store, record) for record in store.records()]


def edit(folder: Path, name: str, change: Any) -> None:
    """Change a sealed file of plain data and make its manifest anew, as somebody would who wants it to go unseen."""
    data = json.loads((folder / name).read_text())
    change(data)
    (folder / name).write_text(json.dumps(data))
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").write_bytes(manifest_for(folder, 0))


@pytest.fixture
def energy(tmp_path) -> Path:
    return recorded_stores.unpacked(recorded_stores.ENERGY, tmp_path / "store")


@pytest.fixture
def one(energy) -> Path:
    """A trial that claims energy, in a copy of the store."""
    return next(
        path.parent for path in sorted(energy.glob("trials/*/record.json")) if "energy_step_j" in path.read_text()
    )


def differing(root: Path) -> dict[str, list[str]]:
    return {
        f"{each.trial}.{each.attempt}": [str(one) for one in each.differences]
        for each in looked(root)
        if each.differences
    }


# Real trials, of an H200


def test_every_figure_of_a_real_store_is_what_its_raw_data_give():
    found = looked(recorded_stores.ENERGY)
    assert [each.differences for each in found] == [()] * 10
    assert sum(each.derived for each in found) > 900
    assert {name for each in found for name in each.taken} == COUNTED


def test_energy_that_an_older_rule_did_not_claim_is_named_and_all_else_is_equal():
    """They were sealed while a counter still needed 60 readings: today's code would claim what they do not."""
    found = looked(recorded_stores.MODES)
    differences = [one for each in found for one in each.differences]
    assert len(found) == 98
    assert all(one.stored is None and one.figure.startswith(OF_ENERGY) for one in differences)
    assert sum(each.derived for each in found) > 3000


# What was edited


def test_an_edited_step_time_is_found_though_every_checksum_is_right(energy, one):
    edit(one, "record.json", lambda record: record["metrics"].update(step_s=record["metrics"]["step_s"] * 0.9))
    with Store.open(energy) as store:
        assert store.verify() == []
    ((trial, (sentence,)),) = differing(energy).items()
    assert trial == one.name
    assert sentence.startswith("step_s: stored 0.0")
    assert ", derived 0.0" in sentence


EDITED = ("step_mean_s", "stall_s", "epoch0_step_s", "steps", "energy_j", "energy_gpu_j", "power_mean_w",
          "energy_step_j", "gpu_clock_hz", "mean_step_s", "cpu_step_s")  # fmt: skip


@pytest.mark.parametrize("figure", EDITED)
def test_no_figure_can_be_edited_unseen(energy, one, figure):
    edit(one, "record.json", lambda record: record["metrics"].update({figure: record["metrics"][figure] * (1 + 1e-6)}))
    assert [text.partition(":")[0] for text in differing(energy)[one.name]] == [figure]


def test_a_figure_that_was_removed_or_made_up_is_found(energy, one):
    edit(one, "record.json", lambda record: record["metrics"].pop("step_s"))
    edit(one, "record.json", lambda record: record["metrics"].update(speed_up=2.0))
    removed, made_up = sorted(differing(energy)[one.name], reverse=True)
    assert made_up.startswith("speed_up: stored 2.0, and nothing") or removed.startswith(
        "speed_up: stored 2.0, and nothing"
    )
    assert any(text.startswith("step_s: not stored, derived") for text in (removed, made_up))


def test_the_numbers_behind_an_energy_are_looked_at_too(energy, one):
    edit(one, "record.json", lambda record: record["facts"]["energy"]["sources"]["gpu"].update(integral_j=1.0))
    assert [text.partition(":")[0] for text in differing(energy)[one.name]] == ["energy.sources.gpu.integral_j"]


def test_edited_distributions_are_found(energy, one):
    def change(channels: list[dict[str, Any]]) -> None:
        power = next(channel for channel in channels if channel["name"] == "gpu.power_w")
        power["quantiles"][20] *= 1 + 3e-5  # the fixture has more digits than the six that are derived
        power["count"] += 1

    edit(one, "channels.json", change)
    assert [text.partition(":")[0] for text in differing(energy)[one.name]] == [
        "gpu.power_w.count",
        "gpu.power_w.quantile[20]",
    ]


def test_another_processors_rounding_is_no_difference(energy, one):
    def change(record: dict[str, Any]) -> None:
        record["metrics"]["step_s"] *= 1 + 1e-12
        record["metrics"]["overhead_mean_s"] += 1e-19

    edit(one, "record.json", change)
    assert differing(energy) == {}


def test_claims_by_other_limits_are_taken_as_recorded(tmp_path):
    """A later tare may ask for more samples: what it would not claim today was claimed all the same."""
    recorded_stores.unpacked(recorded_stores.IDLE, tmp_path / "store")
    for path in (tmp_path / "store" / "trials").iterdir():
        edit(path, "record.json", lambda record: record["facts"]["thresholds"].update(energy_samples=61))
    found = looked(tmp_path / "store")
    assert not any(each.differences for each in found)
    assert any("limits of another tare" in why for each in found for why in each.taken.values())


# Trials of today


def sealed(root: Path, record: Record, marks: list[tuple[int, str, str, int]], tables: dict[str, Any] | None = None,
           study: dict[str, Any] | None = None) -> Path:  # fmt: skip
    """A trial with two readings of two counters, and with tables of the ftrace probe."""
    with Store.create(root, study or {"study": "s"}, "") as store:
        writer = store.begin(draft(record.trial, settings=dict(record.settings)))
        with SpoolWriter(writer.spool) as spool:
            spool.channels([Channel("cgroup.cpu_s", "s", "counter"), Channel("cgroup.nr_throttled", "", "counter")])
            for t_ns, cpu_s in ((10, 1.0), (1_000_000_010, 1.75)):
                spool.tick(t_ns, [(t_ns, "cgroup.cpu_s", cpu_s), (t_ns, "cgroup.nr_throttled", 0.0)])
        if tables:
            with TableFiles(writer.tables) as files:
                for name, columns in tables.items():
                    files.add(TableName("ftrace", name), columns)
                files.write()
        writer.seal(replace(record, state="ok"), marks, "", "")
    return root


def steps(count: int, step_ns: int, *, name: str = "step", begin_ns: int = 0) -> list[tuple[int, str, str, int]]:
    edges = [(begin_ns + number * step_ns, begin_ns + (number + 1) * step_ns) for number in range(count)]
    return [mark for number, (begin, end) in enumerate(edges)
            for mark in ((begin, name, "begin", number), (end, name, "end", number))]  # fmt: skip


COUNTERS = {"cgroup_cpu_s": 0.75, "cgroup_nr_throttled": 0.0}


def test_the_launchers_words_give_its_figures(tmp_path):
    counted = {"start_ns": 0, "end_ns": 2_000_000_000, "wall_s": 2.0, "cpu_user_s": 1.0, "cpu_system_s": 0.5, "exit": 0}
    record = draft("aaaa", metrics={**COUNTERS, "wall_s": 2.0, "cpu_s": 1.5}, facts={"place": {}, "counted": counted})
    (found,) = looked(sealed(tmp_path / "a", record, []))
    assert (found.differences, found.said, dict(found.taken)) == ((), 2, {})
    (found,) = looked(sealed(tmp_path / "b", replace(record, metrics={**record.metrics, "wall_s": 1.9}), []))
    assert [str(each) for each in found.differences] == ["wall_s: stored 1.9, derived 2.0"]


def test_figures_of_tenants_come_from_the_marks_of_all_of_them(tmp_path):
    own, beside = steps(40, 1000), steps(30, 2000, name="tenant1.step", begin_ns=5000)
    told = {"start_ns": 0, "end_ns": 90_000}
    record = draft(
        "aaaa", settings={"tenants": 2}, facts={"place": {}, "counted": told, "counted_beside": [told]},
        metrics={**COUNTERS, "overlap_s": 35e-6, "steps": 35.0, "warm_up_steps": 4.0, "step_s": 1e-6,
                 "step_mean_s": 1e-6, "epoch0_step_s": 1e-6, "tenant0_step_s": 1e-6, "tenant1_step_s": 2e-6},
    )  # fmt: skip
    (found,) = looked(sealed(tmp_path / "store", record, own + beside))
    assert found.differences == ()


def test_a_mark_of_ones_own_that_is_called_like_a_tenants_is_not_one(tmp_path):
    marks = [*steps(2, 1000), *steps(2, 500, name="tenant1.step")]
    record = draft("aaaa", settings={"tenants": 1}, facts={"place": {}, "counted": {}}, metrics={
        **COUNTERS, "steps": 2.0, "warm_up_steps": 1.0, "step_s": 1e-6, "epoch0_step_s": 1e-6, "step_mean_s": 1e-6,
        "own_tenant1_step_s": 5e-7, "epoch0_own_tenant1_step_s": 5e-7})  # fmt: skip
    (found,) = looked(sealed(tmp_path / "store", record, marks))
    assert found.differences == ()


def test_figures_of_a_tracer_come_from_its_tables(tmp_path):
    calls = {"t_ns": np.arange(12), "role": ["workload"] * 9 + ["host"] * 3}
    probe = find("probes", "ftrace").model_validate({"families": ["syscalls"]})
    study = {
        "study": "s",
        "platform": ["bare"],
        "workload": {"null": {}},
        "probes": [{"ftrace": {"families": ["syscalls"]}}],
    }
    traced = {"probes": ["ftrace"], "rows": {}, "trouble": []}
    figures = probe.figures({"sys_enter": calls}, None)
    record = draft("aaaa", metrics={**COUNTERS, **figures}, facts={"place": {}, "counted": {}, "traced": traced})
    (found,) = looked(sealed(tmp_path / "a", record, [], {"sys_enter": calls}, study))
    assert figures["system_calls"] == 9
    assert found.differences == ()
    less = replace(record, metrics={**record.metrics, "system_calls": 8.0})
    (found,) = looked(sealed(tmp_path / "b", less, [], {"sys_enter": calls}, study))
    assert [str(each) for each in found.differences] == ["system_calls: stored 8.0, derived 9.0"]


def test_of_a_study_that_this_tare_does_not_know_the_tracers_figures_are_taken(tmp_path):
    traced = {"probes": ["ftrace"], "rows": {}, "trouble": []}
    record = draft(
        "aaaa", metrics={**COUNTERS, "system_calls": 9.0}, facts={"place": {}, "counted": {}, "traced": traced}
    )
    (found,) = looked(sealed(tmp_path / "store", record, [], study={"study": "s", "probes": ["x_ray"]}))
    assert found.differences == ()
    assert (
        "does not understand" in found.taken["system_calls"] or "not one that this tare" in found.taken["system_calls"]
    )


def test_a_trial_that_never_got_to_its_workdir_has_no_figures(tmp_path):
    record = draft("aaaa", facts={"device": {}})
    (found,) = looked(sealed(tmp_path / "a", record, steps(3, 10)))
    assert found.differences == ()
    (found,) = looked(sealed(tmp_path / "b", replace(record, metrics={"step_s": 1.0}), steps(3, 10)))
    assert [str(each) for each in found.differences] == ["step_s: stored 1.0, and nothing that was sealed gives it"]


def test_a_trial_that_was_just_run_is_derived_whole(tmp_path):
    """By the engine itself: nothing is taken as recorded, alone and beside another."""
    argv = [sys.executable, str(WORK), "60"]
    study = {"study": "now", "platform": "bare", "workload": {"command": {"argv": argv, "attach": "none"}},
             "tenants": [1, 2], "probes": ["cpu", "cgroup"], "repeat": 1, "aa": False}  # fmt: skip
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    line = [sys.executable, str(WITHOUT_RERUNS), "run", "study.yaml", "-o", "store"]
    done = subprocess.run(line, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=200)
    with Store.open(tmp_path / "store") as store:
        records = store.records()
        found = [rederive(store, record) for record in records]
    assert {record.settings["tenants"] for record in records} == {1, 2}, done.stderr
    assert all("step_s" in record.metrics and "wall_s" in record.metrics for record in records), done.stderr
    assert any("tenant1_step_s" in record.metrics for record in records)
    assert [each.differences for each in found] == [()] * len(found)
    assert [dict(each.taken) for each in found] == [{}] * len(found)
    assert all(each.derived > 10 and each.said > 3 for each in found)
