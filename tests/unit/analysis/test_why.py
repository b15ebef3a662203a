"""The waterfall, from records made to order.

Two stores as the sides of a `why`, from records made to order.

System calls beside each layer come from traced trials of their own.

Where a difference lies, from records made to order.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis_figures import FakeStore, record
from some_layers import ORDER, container, stage
from tare.analysis.weighing import weigh
from tare.analysis.why.causes import is_here, pair
from tare.analysis.why.layers import COUNTERS, calls_by_layer, moved, waterfall
from tare.base.errors import StudyError, TareError
from tare.records.model import Record
from tare.report.text.why import nothing_text, pair_text, waterfall_text


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


DEVICE = {"cpu": "A", "cores": 2, "machine": "aarch64", "memory_bytes": 1 << 34, "kernel": "6.1"}


def store(step_s: float, *, kernel: str = "6.1", argv: str = "train.py", quota: float | None = None):
    return [
        record(
            "runc", block, step_s=None,
            metrics={"step_mean_s": step_s * (1 + block / 1000), "steps": 10.0, "wall_s": 1.0},
            settings={"platform": "runc", "platform.quota": quota, "workload": "command", "workload.argv": argv},
            facts={"device": {**DEVICE, "kernel": kernel}, "inside": {"libc": "glibc 2.36"}},
        )
        for block in range(8)
    ]  # fmt: skip


def test_the_slower_store_is_found_whichever_comes_first_and_what_differs_is_told():
    stores = {"monday": store(0.01), "today": store(0.02, kernel="6.2", quota=0.5)}

    for order in (stores, dict(reversed(stores.items()))):
        found = pair(order, margin=0.05)

        assert (found.slow, found.quick) == ("today", "monday")
        assert found.total.verdict == "slower"
        assert found.total.effect == pytest.approx(1.0, abs=0.02)
        assert found.device == {"kernel": ("6.2", "6.1")}
        assert found.settings == {"platform.quota": (0.5, None)}


def test_a_built_in_workload_is_called_by_its_title():
    settings = {"workload": "generate", "workload.batch": 4, "workload.size": "small", "workload.weights": None}
    settings |= {"platform": "runc"}
    stores = {
        name: [
            replace(each, settings=settings, facts={**each.facts, "title": "GPT-2 (124 M) generation, batch 4"})
            for each in store(step_s)
        ]
        for name, step_s in (("monday", 0.01), ("today", 0.02))
    }

    assert pair(stores, margin=0.05).side == "runc, GPT-2 (124 M) generation, batch 4"
    assert pair({"monday": store(0.01), "today": store(0.02)}, margin=0.05).side == "runc, command train.py"


def test_another_load_of_a_server_is_told_before_anything_else():
    def served(step_s: float, *rates: float | None) -> list[Record]:
        made = store(step_s, argv="app")
        load = {"workload": "server", "workload.count": 200}
        return [
            replace(each, settings={**each.settings, **load, "workload.rate": rates[place % len(rates)]})
            for place, each in enumerate(made)
        ]

    found = pair({"one": served(0.01, None), "two": served(0.02, 40.0)}, margin=0.05)
    assert found.load == {"rate": ("40.0", "not set")}
    told = " ".join(pair_text(found, 80).split())
    assert "part of it. The load differs, which is the likely cause: rate 40.0 (not set in one)." in told
    assert not pair({"one": served(0.01, 40.0, 80.0), "two": served(0.02, 80.0, 40.0)}, margin=0.05).load
    same = {"workload.goal": 0.1, "workload.requests": "/there/asked.txt"}  # what judges answers, and another folder
    other = [replace(each, settings={**each.settings, **same}) for each in served(0.02, 40.0)]
    here = [replace(each, settings={**each.settings, "workload.requests": "/asked.txt"}) for each in served(0.01, 40.0)]
    assert not pair({"one": here, "two": other}, margin=0.05).load


def test_stores_of_other_programs_are_not_compared():
    with pytest.raises(StudyError, match="no platform with the same workload"):
        pair({"one": store(0.01), "two": store(0.02, argv="other.py")}, margin=0.05)


def test_stores_whose_commands_differ_in_an_option_are_compared_and_the_option_is_told():
    found = pair({"one": store(0.01, argv="app --threads 1"), "two": store(0.02, argv="app --threads 16")}, margin=0.05)

    assert (found.slow, found.side) == ("two", "runc, command app")
    assert found.settings == {"workload.argv": ("app --threads 16", "app --threads 1")}


def test_a_store_of_another_device_is_not_tried_here():
    assert is_here(store(0.01), DEVICE)
    assert not is_here(store(0.01), {**DEVICE, "cores": 64})


COUNTS = {0: 100.0, 1: 101.0, 2: 101.0, 3: 150.0, 4: 150.0}


def traced(leave_one_out: bool = False):
    """One trial of each stage; the third layer (cpu) adds calls."""
    first = [record for record in container({}, leave_one_out=leave_one_out) if record.block == 0]
    return [
        replace(
            record,
            metrics={"system_calls_step": _count(record), "step_s": 9.0},
            facts={"traced": {"probes": ["syscalls"]}},
        )
        for record in first
    ]


def _count(record):
    return 90.0 if record.settings["platform"] == "bare" else COUNTS[len(record.settings["platform.isolation"])]


def test_each_layer_has_its_calls_with_and_without():
    found = calls_by_layer(traced())
    assert [(each.layer, each.without, each.with_it) for each in found.layers] == [
        ("mounts", 90, 100), ("pid", 100, 101), ("network", 101, 101), ("cpu", 101, 150), ("seccomp", 150, 150),
    ]  # fmt: skip
    assert found.of("cpu").share == pytest.approx(150 / 101 - 1)


def test_a_trial_that_cannot_be_used_leaves_its_layers_out():
    records = traced()
    records[2] = replace(records[2], state="failed")  # with the pid layer
    assert [each.layer for each in calls_by_layer(records).layers] == ["mounts", "pid+network", "cpu", "seccomp"]


def test_without_counts_there_is_a_sentence():
    assert "not counted" in calls_by_layer([]).missing


def test_the_text_shows_calls_beside_each_layer_and_says_where_they_are_from():
    found = waterfall(container({"cpu": 0.2}), margin=0.05)
    text = waterfall_text(found, {}, 160, calls_by_layer(traced()))
    assert "system calls per step" in text
    assert "150 (+48.5 %)" in text
    assert "whose times are not compared" in text


def test_traced_trials_never_enter_the_timed_comparison():
    timed = container({})
    with_traced = waterfall([*timed, *(replace(record, trial=f"t-{record.trial}") for record in traced())], margin=0.05)
    assert with_traced.total.effect == waterfall(timed, margin=0.05).total.effect


PARTS = {"stall_s": 0.0002, "forward_s": 0.0005, "backward_s": 0.0008, "optimiser_s": 0.0003, "overhead_s": 0.0002}


def trials(platform: str, grown: str | None = None, by_s: float = 0.0, n: int = 10) -> list[Record]:
    rng = np.random.default_rng(len(platform))
    made = []
    for block in range(n):
        noise = float(np.exp(rng.normal(0, 0.005)))
        parts = {part: (value + (by_s if part == grown else 0.0)) * noise for part, value in PARTS.items()}
        metrics = parts | {"compute_s": parts["forward_s"] + parts["backward_s"] + parts["optimiser_s"]}
        made.append(record(platform, block, sum(parts.values()), metrics=metrics))
    return made


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("optimiser_s", "the optimiser step"),
        ("stall_s", "the wait for data"),
        ("backward_s", "the backward pass"),
        ("overhead_s", "the loop around it"),
    ],
)
def test_the_part_that_grew_is_named(part: str, words: str) -> None:
    notes = weigh(FakeStore([*trials("bare"), *trials("docker", part, 0.001)])).notes

    assert words in notes[0]
    assert "takes more than 'bare'" in notes[0]


def test_a_faster_side_is_told_what_it_takes_less() -> None:
    notes = weigh(FakeStore([*trials("bare", "optimiser_s", 0.001), *trials("docker")])).notes

    assert "takes less than 'bare' is in the optimiser step" in notes[0]


def test_nothing_is_blamed_where_nothing_is_surely_different_or_all_grew_alike() -> None:
    same = weigh(FakeStore([*trials("bare"), *trials("docker")])).notes
    slower = [
        record("docker", r.block, r.metrics["step_s"] * 1.5, metrics={k: v * 1.5 for k, v in r.metrics.items()})
        for r in trials("docker")
    ]
    alike = weigh(FakeStore([*trials("bare"), *slower])).notes

    assert not any("takes more" in note for note in (*same, *alike))


@pytest.mark.parametrize(
    ("words", "said"),
    [({"effect": 0.019, "low": 0.01, "high": 0.03},
      "The whole container is slower than bare metal, by less than the margin of 5 % (+1.9 %"),
     ({"effect": 0.001, "low": -0.01, "high": 0.01},
      "The whole container is the same as bare metal within 5 % (+0.1 %")],
)  # fmt: skip
def test_no_cost_is_told_in_a_whole_sentence(words, said) -> None:
    total = waterfall(container({}), margin=0.05).total

    assert nothing_text(replace(total, verdict="equivalent", **words), 80).replace("\n", " ").startswith(said)
