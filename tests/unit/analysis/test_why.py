"""The waterfall, from records made to order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis_figures import record
from some_layers import ORDER, container, stage
from tare.analysis.why.layers import COUNTERS, moved, waterfall
from tare.base.errors import StudyError, TareError
from tare.report.text.why import nothing_text, waterfall_text


@pytest.mark.parametrize("guilty", ["mounts", "pid", "cpu", "seccomp"])
def test_the_layer_that_costs_is_named_and_no_other(guilty: str) -> None:
    found = waterfall(container({guilty: 0.20}), margin=0.05)

    assert [layer.layer for layer in found.guilty] == [guilty]
    assert found.total.verdict == "slower"


def test_the_engine_on_top_is_a_layer_too() -> None:
    found = waterfall(container({}, docker=0.15), margin=0.05)

    assert [layer.layer for layer in found.guilty] == ["docker"]


def test_each_layer_is_seen_from_both_ends() -> None:
    layers = {layer.layer: layer for layer in waterfall(container({"cpu": 0.3}), margin=0.05).layers}

    assert layers["cpu"].added is not None
    assert layers["cpu"].kept is not None
    assert layers["cpu"].added.effect == pytest.approx(0.3, abs=0.02)
    assert layers["cpu"].kept.effect == pytest.approx(0.3, abs=0.02)
    assert list(layers) == ["mounts", *ORDER]


def test_two_guilty_layers_come_the_dearest_first() -> None:
    found = waterfall(container({"pid": 0.10, "seccomp": 0.30}), margin=0.05)

    assert [layer.layer for layer in found.guilty] == ["seccomp", "pid"]


def test_a_container_that_costs_nothing_accuses_nobody() -> None:
    found = waterfall(container({}), margin=0.05)

    assert found.total.verdict == "equivalent"
    assert found.guilty == ()
    assert "no cost to break down" in nothing_text(found.total, 80).replace("\n", " ")


def test_the_user_namespace_is_put_on_beside_the_engine() -> None:
    extra = stage("runc", (*ORDER, "user"), 1.25, 70)
    found = waterfall([*container({}, docker=0.0), *extra], margin=0.05)

    assert [layer.layer for layer in found.guilty] == ["user"]
    assert found.total.level == "docker"


def test_without_bare_metal_there_is_no_waterfall() -> None:
    with pytest.raises(TareError, match="no trial of bare metal could be used"):
        waterfall(stage("runc", ORDER, 1.0, 1), margin=0.05)


def test_counters_that_moved_stand_beside_the_layer() -> None:
    before = stage("runc", (), 1.0, 1, cgroup_nr_throttled=0.0, minor_faults=1000.0)
    after = stage("runc", ("cpu",), 2.0, 2, cgroup_nr_throttled=80.0, minor_faults=1001.0)

    (found,) = moved(after, before)

    assert (found.name, found.before, found.after) == ("cgroup_nr_throttled", 0.0, 80.0)


def test_the_counters_of_a_layer_are_corrected_together() -> None:
    """Eleven counters that do not change at all, 8 blocks each: uncorrected, a layer in three would move one."""
    rng = np.random.default_rng(4)
    false = 0
    for _ in range(100):
        sides = []
        for isolation in ((), ("cpu",)):
            drawn = stage("runc", isolation, 1.0, 1)
            sides.append([replace(each, metrics=each.metrics | {name: 1000 * float(np.exp(rng.normal(0, 0.1)))
                                                                for name in COUNTERS}) for each in drawn])  # fmt: skip
        false += bool(moved(sides[1], sides[0]))
    assert len(COUNTERS) >= 11
    assert false <= 12  # 5 % of 100, and three deviations


def test_words_that_changed_are_told() -> None:
    before = [record("bare", 0, facts={"inside": {"process": {"Seccomp": "0"}}})]
    after = [record("runc", 0, facts={"inside": {"process": {"Seccomp": "2"}}})]

    assert [(one.name, one.before, one.after) for one in moved(after, before)] == [("Seccomp", "0", "2")]


def test_the_text_names_the_guilty_and_what_was_not_looked_at() -> None:
    text = waterfall_text(waterfall(container({"seccomp": 0.2}), margin=0.05), {"memory": "no limit."}, 100)

    assert "It is the seccomp filter that costs" in text
    assert "not looked at: memory cgroup (limit): no limit." in text
    assert max(map(len, text.splitlines())) <= 100


def test_at_80_columns_no_figure_or_word_is_cut() -> None:
    text = waterfall_text(waterfall(container({"seccomp": 0.2}), margin=0.05), {}, 80)

    line = next(line for line in text.splitlines() if line.startswith("seccomp filter  "))
    assert line.split()[2:] == ["+19.7", "%", "[+18.7,", "+20.9]", "slower", "+19.7", "%"]
    assert max(map(len, text.splitlines())) <= 80


def test_trials_of_two_workloads_are_not_taken_for_repetitions() -> None:
    one = container({"pid": 0.1})
    other = [
        replace(record, trial=f"{record.trial}-other", settings={**record.settings, "workload": "torch_infer"})
        for record in one
    ]

    with pytest.raises(StudyError, match=r"more than their layers \(workload\)"):
        waterfall([*one, *other], margin=0.05)


def test_containers_with_two_quotas_are_not_taken_for_repetitions() -> None:
    both = [
        replace(record, trial=f"{record.trial}-{quota}", settings={**record.settings, "platform.quota": quota})
        for record in container({})
        for quota in (0.5, 1.0)
    ]

    with pytest.raises(StudyError, match=r"platform\.quota"):
        waterfall(both, margin=0.05)


def test_every_engine_stands_on_the_whole_container() -> None:
    found = waterfall([*container({}, docker=0.5), *stage("podman", (), 1.2, 60)], margin=0.05)

    added = {layer.layer: layer.added for layer in found.layers}
    assert added["docker"] is not None
    assert added["podman"] is not None
    assert added["podman"].against == added["docker"].against
    assert added["podman"].effect == pytest.approx(0.2, abs=0.02)
