"""What binds a pipeline, and how many workers or how slow a medium hide its stall.

Fetch against pre-process, by difference of three kinds of trial.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paper_results import write_store
from tare.analysis.questions.step_parts import stall_parts
from tare.analysis.resources.pipeline import anatomy, anatomy_answer, pipeline_rows, predicted_stall, predicted_workers
from tare.base.errors import StudyError
from tare.records.model import Record, TrialRow
from tare.report.sections import answer_text


def loader(fetch_s, rest_s=0.025, workers=(0, 1, 2, 4), trials=8, noise=0.01, seed=1, **settings):
    """Trials of a pipeline that behaves as the prediction says, with a little noise and a rest of stall."""
    chance = np.random.default_rng(seed)
    made = []
    for count in workers:
        for trial in range(trials):
            fetch, rest = (each * float(np.exp(chance.normal(0, noise))) for each in (fetch_s, rest_s))
            stall = max(predicted_stall(fetch, rest, count), 0.0002)
            values = {"step": rest + stall, "stall": stall, "compute": rest * 0.9}
            label = ".".join(str(each) for each in (count, trial, *settings.values()))
            made.append(TrialRow.foreign({"workers": float(count), **settings}, values, label))
    return made


def one(found):
    (only,) = found.pipelines
    return only


def test_a_pipeline_needs_as_many_workers_as_its_fetch_is_longer_than_the_rest():
    found = one(anatomy(loader(0.060)))

    assert found.fetch_s.value == pytest.approx(0.060, rel=0.02)
    assert found.workers_predicted.value == 3
    assert found.workers_predicted.low <= 3 <= found.workers_predicted.high
    assert (found.workers_measured, found.workers_by_median) == (4.0, 4.0)  # 3 was not measured
    assert [part.hidden for part in found.parts] == ["not hidden", "not hidden", "not hidden", "hidden"]
    assert [part.binds for part in found.parts] == ["input", "input", "input", "compute"]
    assert found.parts[1].predicted_stall_s == pytest.approx(0.035, rel=0.03)
    assert found.parts[3].shares["compute"] == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize(
    ("shares", "word"),
    [
        ({"gpu_busy_share": 0.98, "gpu_launch_share": 0.01, "gpu_copying_share": 0.02}, "gpu"),
        ({"gpu_busy_share": 0.95, "gpu_launch_share": 0.01, "gpu_copying_share": 0.7}, "copy"),
        ({"gpu_busy_share": 0.09, "gpu_launch_share": 0.82, "gpu_sync_share": 0.05}, "launch"),
        ({"gpu_busy_share": 0.4, "gpu_launch_share": 0.1, "gpu_sync_share": 0.5}, "sync"),
        ({}, "compute"),
    ],
)
def test_where_the_stall_is_hidden_it_says_what_the_gpu_waited_for(shares, word):
    rows = [replace(row, metrics={**row.metrics, **shares}) for row in loader(0.0005, workers=(0,))]

    found = anatomy(rows)
    assert one(found).parts[0].binds == word
    told = answer_text(anatomy_answer(found))
    assert ("launch kernels" in told) == (word == "launch")
    assert ("non_blocking" in told) == (word == "copy")


def test_a_fetch_that_is_a_small_part_of_the_step_needs_no_worker():
    found = one(anatomy(loader(0.0005)))

    assert found.workers_predicted.value == 0
    assert found.workers_measured == 0.0


def test_a_prediction_that_fails_is_told_in_words():
    slow = [replace(row, metrics={**row.metrics, "stall": 0.01, "step": 0.035}) for row in loader(0.01, workers=(0, 1))]
    told = " ".join(answer_text(anatomy_answer(anatomy(slow))).split())
    assert "predicted 1 [1, 1]; measured none of 0, 1. The prediction fails with 1 worker: 10" in told


def test_trials_without_a_loader_are_refused_in_words():
    store = Path(__file__).parents[3] / "studies-results" / "h200" / "serve-knee.tare"
    with pytest.raises(StudyError, match="no trial has a fetch stall: none has a data loader"):
        pipeline_rows(store, settings=None, columns={}, factors={})


def test_a_share_that_is_stricter_calls_less_of_a_stall_hidden():
    rows = loader(0.0012, workers=(0,))

    assert one(anatomy(rows, share=0.10)).parts[0].hidden == "hidden"
    assert one(anatomy(rows, share=0.01)).parts[0].hidden == "not hidden"


def test_few_trials_cannot_tell_and_their_median_is_said_to_be_one():
    found = anatomy(loader(0.060, trials=3))

    parts = one(found).parts
    assert {part.hidden for part in parts} == {"cannot tell"}
    assert [part.by_median for part in parts] == [False, False, False, True]
    assert one(found).workers_measured is None and one(found).workers_by_median == 4.0
    assert one(found).workers_predicted.low is None
    assert any("Fewer than 6 trials" in note for note in found.notes)


def test_without_trials_at_no_workers_nothing_is_predicted():
    found = anatomy(loader(0.060, workers=(1, 2)))

    assert one(found).fetch_s is None and one(found).workers_predicted is None
    assert one(found).parts[0].predicted_stall_s is None
    assert any("0 workers" in note for note in found.notes)


@pytest.mark.parametrize(("cold", "warm", "binds"), [(0.060, 0.010, "disk"), (0.060, 0.050, "cpu")])
def test_a_warm_cache_tells_the_disk_from_the_cpu(cold, warm, binds):
    found = anatomy([*loader(cold, cache="cold"), *loader(warm, cache="warm", seed=2)])

    first, second = found.pipelines
    assert (first.cache, first.parts[0].binds) == ("cold", binds)
    assert first.disk_s == pytest.approx(cold - warm, rel=0.1) and not first.disk_at_least
    assert second.disk_s == 0.0 and second.parts[0].binds == "cpu"


def test_a_faster_medium_tells_at_least_how_much_the_disk_takes():
    found = anatomy([*loader(0.080, storage="hdd"), *loader(0.030, storage="ssd", seed=2)])

    hdd, ssd = found.pipelines
    assert hdd.disk_at_least and hdd.disk_s == pytest.approx(0.050, rel=0.1)
    assert hdd.parts[0].binds == "disk"
    assert ssd.disk_s is None and ssd.parts[0].binds == "input"


def test_the_slowest_medium_that_hides_the_stall_depends_on_the_workers():
    found = anatomy(
        [*loader(0.060, storage="hdd"), *loader(0.040, storage="sd", seed=2), *loader(0.020, storage="ssd")]
    )

    by_workers = {each.workers: each for each in found.media}
    assert by_workers[0.0].slowest_measured is None
    assert (by_workers[1.0].slowest_predicted, by_workers[1.0].slowest_measured) == ("ssd", "ssd")
    assert (by_workers[2.0].slowest_predicted, by_workers[2.0].slowest_measured) == ("sd", "sd")
    assert by_workers[4.0].slowest_by_median == "hdd"


def test_other_settings_make_pipelines_of_their_own():
    found = anatomy([*loader(0.060, model="lenet"), *loader(0.020, model="vgg")])

    assert [each.cell for each in found.pipelines] == ["model lenet", "model vgg"]


@pytest.mark.parametrize(
    ("fetch", "rest", "workers"), [(0.1, 0.1, 1), (0.1, 0.05, 2), (0.104, 0.1, 1), (0.2, 0.1, 2), (0.001, 0.1, 0)]
)
def test_the_predicted_number_is_the_smallest_that_hides(fetch, rest, workers):
    assert predicted_workers(fetch, rest, 0.05) == workers


def test_rows_are_read_in_seconds_whatever_their_columns_are_called(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("w,disk,net,epoch_ms,wait_ms,overhead_s\n2,ssd,lenet,100,10,-0.001\n")

    (row,) = pipeline_rows(
        path,
        settings=["net"],
        columns={"step": "epoch_ms", "stall": "wait_ms"},
        factors={"workers": "w"},
    )

    assert row.settings == {"workers": 2.0, "storage": "ssd", "net": "lenet"}
    assert row.metrics == pytest.approx({"step": 0.1, "stall": 0.01, "overhead": -0.001})


def test_the_number_of_workers_is_read_also_where_all_trials_have_the_same(tmp_path):
    store = write_store(tmp_path / "store", "s1-storage", "smoke", {})

    rows = pipeline_rows(store, settings=None, columns={}, factors={})

    assert {row.settings["workers"] for row in rows} == {0.0}
    assert {row.settings["storage"] for row in rows} == {"hdd", "ssd"}


@pytest.mark.parametrize(
    ("settings", "values", "said"),
    [
        ({"cores": 1.0}, {"step": 1.0, "stall": 0.1}, "no setting is called workers"),
        ({"workers": "many"}, {"step": 1.0, "stall": 0.1}, "'many' is not a number of workers"),
        ({"workers": 1.0}, {"step": 1.0, "stall": 2.0}, "its stall is not below its step"),
    ],
)
def test_what_is_no_pipeline_is_refused(settings, values, said):
    with pytest.raises(StudyError, match=said):
        anatomy([TrialRow.foreign(settings, values, "row 1")])


def test_the_papers_own_figures_without_workers_predict_those_with_one():
    # S1, table of stall and E2E on an Xavier NX: HDD 704 -> 173 s of stall, SD 502 -> 18.4 s; two workers hide the HDD.
    epochs = {
        ("hdd", 0): (1226.0, 704.0),
        ("hdd", 1): (713.0, 173.0),
        ("sd", 0): (1027.0, 502.0),
        ("sd", 1): (599.0, 18.4),
    }
    rows = [
        TrialRow.foreign(
            {"workers": float(workers), "storage": disk}, {"step": step, "stall": stall}, f"{disk} {workers}"
        )
        for (disk, workers), (step, stall) in epochs.items()
    ]

    hdd, sd = anatomy(rows).pipelines

    assert hdd.parts[1].predicted_stall_s == pytest.approx(173, rel=0.06)
    assert hdd.workers_predicted.value == 2
    assert sd.workers_predicted.value == 1 and sd.workers_by_median == 1.0


def test_media_and_cache_of_our_own_stores_are_known_and_a_cache_that_epoch_0_filled_is_warm():
    store = Path(__file__).parents[3] / "studies-results" / "cpu2" / "s1-storage.tare"

    found = anatomy(pipeline_rows(store, settings=None, columns={}, factors={}))

    assert {each.medium for each in found.pipelines} == {"hdd", "sd", "ssd"}
    assert {each.cache for each in found.pipelines} == {"cold_every_epoch", "warm after epoch 0"}
    assert all(each.disk_s is not None and not each.disk_at_least for each in found.pipelines)
    assert {each.parts[0].binds for each in found.pipelines} == {"cpu"}
    assert not any("cannot be separated" in note for note in found.notes)


SYNTHETIC, CACHED, COLD = ("memory", "warm"), ("disk", "warm"), ("disk", "cold")


def trial(block: int, kind: tuple[str, str], stall_s: float, **settings: Any) -> Record:
    source, state = kind
    return Record(
        trial=f"{block}-{source}-{state}", attempt=1, study="s", block=block, position=0, twin=False,
        settings={"platform": "bare", "workload.source": source, "control.page_cache.state": state, **settings},
        state="ok", started_utc="", start_ns=0, tare_version="1", metrics={"stall_mean_s": stall_s},
    )  # fmt: skip


def blocks(count: int) -> list[Record]:
    """Each block is slower than the one before by a millisecond, all of it: pairing takes that out."""
    found = []
    for block in range(count):
        late_s = block / 1000
        found += [trial(block, SYNTHETIC, 0.001 + late_s), trial(block, CACHED, 0.004 + late_s)]
        found.append(trial(block, COLD, 0.010 + late_s))
    return found


def test_the_three_parts_are_differences_within_blocks() -> None:
    said = stall_parts(blocks(6))

    assert said is not None
    assert "fetch 6.00 ms [6.00, 6.00]" in said
    assert "pre-process 3.00 ms [3.00, 3.00]" in said
    assert "n = 6 blocks" in said


def test_too_few_blocks_have_figures_and_no_interval() -> None:
    said = stall_parts(blocks(2))

    assert said is not None
    assert "fetch 6.00 ms (cold - cached), pre-process 3.00 ms (cached - synthetic)" in said


def test_a_block_without_one_of_the_kinds_does_not_count() -> None:
    said = stall_parts([*blocks(3), trial(9, COLD, 5.0)])

    assert said is not None
    assert "n = 3 blocks" in said


def test_nothing_is_said_where_a_kind_is_missing_or_something_else_was_varied() -> None:
    assert stall_parts([]) is None
    assert stall_parts([trial(0, CACHED, 1.0), trial(0, COLD, 2.0)]) is None
    assert stall_parts([*blocks(2), trial(0, COLD, 2.0, **{"workload.batch": 64})]) is None
