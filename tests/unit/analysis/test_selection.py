"""Which trials answer a question, which are left out, and why."""

from __future__ import annotations

import pytest

from some_records import draft
from tare.analysis.labels import Labels
from tare.analysis.selection import Selection, request, select
from tare.records.model import Record


def trial(name: str, platform: str, step_s: float | None = 1.0, **how: object) -> Record:
    metrics = {} if step_s is None else {"step_s": step_s}
    return draft(name, **{"settings": {"platform": platform}, "metrics": metrics, "state": "ok", **how})


def selected(*records: Record, **asked: str) -> Selection:
    return select(records, request({}, records, **asked))


def test_the_newest_attempt_with_the_figure_is_used_and_the_others_are_counted():
    found = selected(trial("a", "bare", 1.0, attempt=1), trial("a", "bare", 2.0, attempt=2), trial("b", "docker", None))
    assert [(each.trial, each.attempt) for each in found.used] == [("a", 2)]
    assert found.repeated == 1
    assert [(left.trial, *map(str, left.reasons)) for left in found.left_out] == [("b", "it has no step_s.")]


def test_a_level_whose_trials_all_failed_stays_a_level():
    found = selected(trial("a", "bare"), trial("b", "docker", state="failed", reasons=("it crashed.",)))

    assert (found.levels, found.against) == (["bare", "docker"], "bare")
    assert [contest.level for contest in found.family()] == ["docker"]
    assert [left.reasons for left in found.left_out] == [("it crashed.",)]


def test_what_lacks_the_factor_is_left_out():
    without = trial("c", "bare", settings={"workload": "null"})
    assert [[*map(str, left.reasons)] for left in selected(trial("a", "bare"), without).left_out] == [
        ["it has no platform."]
    ]


def test_a_repeat_is_on_neither_side_and_makes_the_noise_floor():
    found = selected(trial("a", "bare"), trial("a2", "bare", 1.1, twin=1), trial("b", "docker", 1.2))

    ours, theirs = found.sides("docker", "bare")
    assert [[each.trial for each in side] for side in (ours, theirs)] == [["b"], ["a"]]
    (contest,) = found.family()
    assert contest.floor is not None
    assert round(contest.floor, 6) == 0.1


def test_of_types_of_devices_each_device_counts_once():
    records = [
        trial(f"{device}.{n}", "bare", step_s, settings={"platform": "bare", "device": device, "device.type": kind})
        for device, kind, step_s in (("a", "nx", 1.0), ("b", "nx", 1.1), ("c", "agx", 0.9))
        for n in range(5)
    ]
    (contest,) = selected(*records, by="device.type", against="nx").family()

    assert [m.value for m in contest.theirs] == [1.0, 1.1]
    assert [m.value for m in contest.ours] == [0.9]


def test_a_trial_is_put_into_words_once_however_many_figures_are_compared(monkeypatch: pytest.MonkeyPatch):
    """Of a thousand devices a sixth of `tare compare` was labels, made again for each figure."""
    told: list[object] = []
    words = Labels.words
    monkeypatch.setattr(Labels, "words", lambda self, settings: told.append(settings) or words(self, settings))
    trials = [
        trial(f"{platform}-{device}", platform, settings={"platform": platform, "device": f"dev-{device}"})
        for device in range(20)
        for platform in ("bare", "docker")
    ]
    found = selected(*trials)
    assert len(found.family()) == 20
    first = len(told)
    assert first <= 4 * len(trials)  # its level and what is around it, to find the cells and to name them
    for _ in range(5):
        found.family()
        found.by_label()
    assert len(told) == first
