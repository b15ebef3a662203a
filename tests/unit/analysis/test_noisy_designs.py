"""What a weighing makes of `design:`: CPU time as a judged line, what slices tell, and when they are suggested."""

from dataclasses import replace

import numpy as np
import pytest

from analysis_figures import FakeStore, record
from tare.analysis import sentences
from tare.analysis.judging.gate import gate
from tare.analysis.weighing import weigh

CPU_TIME = {"study": "weigh", "design": {"cpu_time": True}}


def trials(noise, cpu=1.0, n=8, metric="cpu_step_s", seed=1):
    rng = np.random.default_rng(seed)
    made = []
    for block in range(n):
        for platform, factor in (("bare", 1.0), ("docker", cpu)):
            step_s = 0.002 * float(np.exp(rng.normal(0, noise)))
            cpu_s = 0.0019 * factor * float(np.exp(rng.normal(0, 0.003)))
            made.append(record(platform, block, step_s, metrics={"step_mean_s": step_s, metric: cpu_s}))
    return made


@pytest.mark.parametrize("metric", ["cpu_step_s", "cpu_s"])
def test_cpu_time_is_judged_where_the_study_declares_it(metric):
    found = weigh(FakeStore(trials(0.2, cpu=1.08, metric=metric), CPU_TIME))

    (line,) = found.tested
    assert (line.metric, line.verdict) == (metric, "slower")
    assert line.confidence + found.comparisons[0].confidence > 1.9  # one family with the headline
    assert found.comparisons[0].verdict == "cannot_tell"
    assert sentences.CPU_TIME in found.notes
    assert [each.code for each in gate(found, 0.05).reasons] == ["gate.over"]


def test_cpu_time_is_only_told_where_it_is_not_declared():
    found = weigh(FakeStore(trials(0.2, cpu=1.08)))
    assert found.tested == ()
    assert sentences.CPU_TIME not in found.notes


def test_a_side_without_cpu_time_has_no_such_line():
    records = [replace(each, metrics={"step_mean_s": each.metrics["step_mean_s"]}) for each in trials(0.01)[:2]]
    assert weigh(FakeStore([*records, *trials(0.01)[2:]], CPU_TIME)).tested == ()


def test_slices_are_suggested_where_many_blocks_are_missing():
    advised = sentences.noisy(sliceable=True)
    assert advised in weigh(FakeStore(trials(0.2))).notes
    assert advised not in weigh(FakeStore(trials(0.005))).notes
    assert advised not in weigh(FakeStore(trials(0.2), {"study": "s", "design": {"slices": {}}})).notes


def test_slices_are_not_suggested_where_they_are_refused():
    def said(study, **settings):
        records = [replace(each, settings={**each.settings, **settings}) for each in trials(0.2)]
        (note,) = [note for note in weigh(FakeStore(records, study)).notes if "hides the answer" in note]
        return note

    watched = {"study": "s", "probes": ["gpu", {"power_rapl": {}}, "load"]}
    assert "`design: slices`" not in said({"study": "s"}, workload="torch_infer")
    assert "the same noise, which needs `probes:` without gpu and power_rapl;" in said(watched)
    on_gpu = said(watched, **{"workload.device": "cuda"})
    assert "without gpu and power_rapl and `timing: sync`;" in on_gpu


def test_a_weighing_tells_how_the_sides_took_turns():
    told = {"length_s": 0.1, "rounds": 40, "others_share": 0.12, "left_out_ns": [[0, 1]] * 10}
    records = [
        replace(each, facts={**each.facts, "slices": {**told, "paired_ns": [each.block, each.block + 1]}})
        for each in trials(0.005)
    ]
    (note,) = [each for each in weigh(FakeStore(records)).notes if "took turns" in each]
    assert "slices of 100 ms; 80 of 320 rounds were left out" in note
    assert "others took 12 % of the CPU time" in note
