"""What claims make of blocks, cells, noise, other software and stores that may not be pooled."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import product

import pytest
from claim_cases_s4 import pinning
from claimed import DEVICE, Cell, answer, stores, trials

from tare.base.errors import StudyError
from tare.papers.claims.deciding import answers, by_device, claims_of, every_claim, populations
from tare.papers.claims.model import Series, pooled, rising, trend
from tare.records.model import StoreTrials

# The list of mission.md, "The take-aways that `claims` knows", and the papers' further ones: one id for each statement.
TAKE_AWAYS = {
    "s0": """compute-rises-for-all-models container-cost-is-negligible lighter-models-lose-more
             gpu-use-falls-and-cpu-use-rises inference-loses-less optimiser-step-grows-most
             lower-cpu-clock-makes-it-worse gpu-and-memory-clocks-do-not more-system-calls
             seccomp-off-changes-nothing total-energy-rises inference-energy-rises-less
             instrumentation-slows-containers energy-rise-is-baseload memory-cost-is-small""",
    "s1": """one-worker-removes-most-of-the-stall more-workers-help-only-slow-media-or-fast-gpus
             hidden-medium-is-enough page-cache-makes-the-medium-irrelevant caching-helps-only-in-the-sweet-spot
             linear-on-fast-media pipelining-lowers-energy relative-speeds-decide""",
    "s2": """faults-and-cycles-rise daemon-is-insignificant block-requests-rise interval-below-flush-interval
             write-backs-more-often-and-less-regularly tenants-flush-more-at-the-same-interval
             background-write-backs-grow-with-tenants faults-concentrate-on-few-files
             write-backs-concentrate-on-hot-pages nvm-layer-cuts-flush-latency""",
    "s3": """gain-of-pipelining-depends-on-the-model medium-matters-by-io-pressure larger-batches-until-saturation
             stall-rises-a-batch-and-falls-an-epoch epochs-vary-little devices-vary-little energy-varies-little
             software-varies-a-lot dvfs-changes-clocks-only idle-power-by-state low-gpu-clock-costs-energy
             default-mode-may-not-be-pareto baseload-dominates-light-models energy-by-mode-is-modest
             heavier-models-gain-more-from-gpu-clock cpu-clock-and-cores-cut-stall memory-clock-matters-for-both
             four-modes-predict-time most-predictions-are-close energy-is-harder-to-predict""",
    "s4": """e2e-stops-improving vanilla-container-with-few-cores-is-an-outlier pinning-lowers-the-overhead
             bare-without-idle-core-can-be-slower machines-are-slower-without-an-idle-core
             more-than-one-socket-is-slower storage-parts-platforms-by-input gpu-time-rises-with-cores
             questions-gain-over-3x-on-a-gpu pre-and-post-processing-become-the-bottleneck
             gpu-helps-only-where-inference-dominates inference-only-overstates micro-vm-is-not-faster
             container-in-vm-costs-most container-costs-least-on-the-edge""",
}
FASTER = "s4.pinning-lowers-the-overhead"


def containers(effects, figure="energy_step_j", **settings):
    """Bare metal and a container for each (model, effect)."""
    return [
        Cell({"platform": platform, "workload.model": model, **settings}, {figure: 1 + effect * (platform != "bare")})
        for model, effect in effects
        for platform in ("bare", "docker")
    ]


# The registry


def test_every_take_away_of_the_mission_is_a_claim_in_the_file_of_its_paper():
    listed = [f"{paper}.{name}" for paper, names in TAKE_AWAYS.items() for name in names.split()]

    assert [claim.id for claim in every_claim()] == listed


def test_a_paper_has_its_own_claims_and_those_that_it_shares():
    assert {claim.id.partition(".")[0] for claim in claims_of("S3")} == {"s1", "s3"}
    assert {claim.id.partition(".")[0] for claim in claims_of("s1")} == {"s1"}
    with pytest.raises(StudyError, match="No paper 's7'"):
        claims_of("s7")


# Blocks and cells


def test_a_trend_is_the_change_from_the_first_level_to_the_last_by_a_line_through_all():
    def series(value):
        return Series({"0/0": value, "0/1": value + 1}, frozenset())

    cells = {frozenset({("n", level)}): series(value) for level, value in ((1, 0.0), (2, 1.0), (4, 2.0), (8, 3.0))}

    (found,) = trend(cells, "n", rising).values()

    assert found.values == pytest.approx({"0/0": 3.0, "0/1": 3.0})


def test_a_block_that_misses_a_cell_does_not_move_the_mean():
    whole = {frozenset({("a", 1)}): Series({f"0/{b}": 1.0 for b in range(6)}, frozenset())}
    whole[frozenset({("a", 2)})] = Series({f"0/{b}": 3.0 for b in range(5)}, frozenset())

    assert pooled(whole).values == pytest.approx({f"0/{b}": 2.0 for b in range(6)})


def test_a_tendency_is_undecided_where_a_cell_surely_goes_the_other_way():
    cells = containers([("lenet5", 0.5), ("resnet18", 0.5), ("vgg11", -0.2)])

    found = answer("s0.total-energy-rises", *stores(cells))

    assert found.word == "undecided"
    assert "it holds on the whole, and for sure not for VGG-11" in found.why


def test_where_nothing_may_change_opposite_changes_do_not_cancel_out():
    cells = [
        Cell({"platform": "docker", "platform.seccomp": on, "workload.batch": batch}, {"step_s": 1 + shift * on})
        for batch, shift in ((16, 0.2), (64, -0.2))
        for on in (True, False)
    ]

    assert answer("s0.seccomp-off-changes-nothing", *stores(cells)).word == "does not hold here"


def test_a_container_is_compared_with_bare_metal_on_as_many_cores():
    cells = [
        Cell({"platform": platform, "platform.cores": cores, "platform.pin": False}, {"energy_step_j": 8 / cores})
        for platform, cores in product(("bare", "docker"), (1, 8))
    ]

    found = answer("s0.total-energy-rises", *stores(cells))

    assert found.word == "does not hold here"
    assert found.effect == pytest.approx(0.0, abs=0.01)


def test_layers_of_runc_tell_whether_seccomp_is_on():
    cells = [
        Cell({"platform": "runc", "platform.isolation": layers}, {"step_s": 1.0})
        for layers in (["pid", "seccomp"], ["pid"])
    ]

    assert answer("s0.seccomp-off-changes-nothing", *stores(cells)).word == "holds here"


def test_models_that_no_table_knows_are_ordered_by_their_own_compute():
    sizes = {"mine-small": 1.0, "mine-large": 20.0}
    cells = [
        Cell({"platform": platform, "workload.model": model}, {"compute_s": size * (1 + cost * (platform != "bare"))})
        for (model, size), cost in zip(sizes.items(), (0.5, 0.05), strict=True)
        for platform in ("bare", "docker")
    ]

    found = answer("s0.lighter-models-lose-more", *stores(cells))

    assert found.word == "holds here"
    assert found.effect == pytest.approx(1.05 / 1.5 - 1, abs=0.02)


# Doubt


def test_other_software_on_one_side_leaves_a_claim_undecided_and_says_so():
    cells = containers([("lenet5", 0.5)])
    cells = [
        replace(each, facts={"inside": {"torch": {"version": "1.8" if each.settings["platform"] == "bare" else "2.0"}}})
        for each in cells
    ]

    found = answer("s0.total-energy-rises", *stores(cells))

    assert found.word == "undecided"
    assert "torch.version differs" in found.why


def _times(factor, metrics):
    return {name: factor * value for name, value in metrics.items()}


def test_an_effect_within_the_noise_of_the_same_thing_is_not_claimed():
    records = trials(containers([("lenet5", 0.03)]))
    twins = [
        replace(each, twin=1, trial=f"{each.trial}, twin", metrics=_times(1.1, each.metrics))
        for each in records
        if each.settings["platform"] == "bare"
    ]

    assert answer("s0.total-energy-rises", StoreTrials("s", records)).word == "holds here"
    assert answer("s0.total-energy-rises", StoreTrials("s", [*records, *twins])).word == "undecided"


def test_half_of_a_claim_that_holds_is_not_the_whole():
    cells = containers([("lenet5", 1.0)], "minor_faults")

    found = answer("s2.faults-and-cycles-rise", *stores(cells))

    assert found.word == "undecided"
    assert "not measured: no trial has CPU cycles (cycles): it takes the perf probe" in found.why


def test_trials_that_did_not_end_well_are_no_evidence():
    records = [replace(each, state="invalid") for each in trials(containers([("lenet5", 0.5)]))]

    assert answer("s0.total-energy-rises", StoreTrials("s", records)).word == "not measured"


def test_false_claims_are_rare_where_nothing_differs():
    words = [answer(FASTER, *stores(pinning(0.0), noise=0.2, seed=seed, n=10)).word for seed in range(200)]

    assert words.count("holds here") <= 12  # 2.5 % of 200 are 5; more than 12 would happen in one of a thousand


def test_times_of_traced_trials_are_not_compared_but_their_counts_are():
    traced = {"traced": {"probes": ["ftrace"]}}
    timed = [replace(cell, facts=traced) for cell in containers([("lenet5", 0.5), ("resnet18", 0.1)], "compute_s")]
    counted = [replace(cell, facts=traced) for cell in containers([("lenet5", 0.5)], "system_calls")]

    assert answer("s0.lighter-models-lose-more", *stores(timed)).word == "not measured"
    assert answer("s0.more-system-calls", *stores(counted)).word == "holds here"


def test_a_run_that_looked_at_its_intervals_to_stop_pays_for_it():
    cells = containers([("lenet5", 0.3)])
    fixed, looked = (
        answer("s0.total-energy-rises", *stores(cells, study, n=20, noise=0.1))
        for study in ({}, {"repeat": {"until": "2%"}})
    )

    assert looked.high - looked.low > fixed.high - fixed.low


# Populations


def pinned(effect, n=4, **device):
    facts = {"device": {**DEVICE, **device}}
    return trials(pinning(effect, facts=facts), n=n)


def test_blocks_of_several_stores_are_never_pooled_however_few_each_has():
    found = answer(FASTER, StoreTrials("a", pinned(0.2)), StoreTrials("b", pinned(0.2)))
    one_with_enough = answer(FASTER, StoreTrials("a", pinned(0.2, n=6)), StoreTrials("b", pinned(0.2)))
    two = answer(FASTER, StoreTrials("a", pinned(0.2, n=6)), StoreTrials("b", pinned(0.2, n=6)))

    assert (found.word, found.low, found.where) == ("undecided", None, "")
    assert "none of 2 stores has 6 blocks" in found.why
    assert (one_with_enough.word, one_with_enough.n) == ("holds here", 6)  # the other is left out
    assert (two.word, two.n) == ("holds here", 12)


@pytest.mark.parametrize(
    ("blocks", "over"),
    [
        ((6, 6, 6), "over 18 blocks of 3 stores,"),
        ((6, 3, 3), "over 6 blocks of 1 store (2 others with less than 6 left out),"),
        ((3,) * 7, "over 7 stores,"),
        ((8,), "over 8 blocks,"),
    ],
)
def test_the_number_of_stores_is_named_with_that_of_blocks(blocks, over):
    sources = [StoreTrials(f"store {number}", pinned(0.2, n=n)) for number, n in enumerate(blocks)]

    assert over in answer(FASTER, *sources).why


def test_one_store_with_enough_blocks_is_not_said_to_be_several():
    sources = [StoreTrials("a", pinned(0.05, n=6)), StoreTrials("b", pinned(0.05, n=3))]

    found = answer(FASTER, *sources)

    assert found.word == "undecided"
    assert "several stores" not in found.why


def test_a_copy_of_a_store_is_no_further_evidence():
    records = [replace(each, started_utc="2026-11-15T07:00:00Z", start_ns=n) for n, each in enumerate(pinned(0.2))]

    assert answer(FASTER, StoreTrials("a", records), StoreTrials("its copy", records)).n == 4


def test_stores_of_two_devices_are_answered_apart():
    sources = [StoreTrials("a", pinned(0.2, id="nx1")), StoreTrials("b", pinned(-0.2, id="nx2"))]

    found = answers(claims_of("s4"), sources)

    mine = [each for each in found if each.id == FASTER]
    assert [each.n for each in mine] == [4, 4]
    assert [each.where for each in mine] == ["a (nx1)", "b (nx2)"]


def populations_of(*records):
    return populations(by_device([StoreTrials(f"store {number}", each) for number, each in enumerate(records)]))


def test_another_kernel_or_another_torch_is_another_population():
    def with_torch(version):
        inside = {"torch": {"version": version}}
        return [replace(each, facts={**each.facts, "inside": inside}) for each in pinned(0.2)]

    assert len(populations_of(pinned(0.2), pinned(0.2, kernel="6.6"))) == 2
    assert len(populations_of(with_torch("2.0"), with_torch("2.1"))) == 2
    assert len(populations_of(with_torch("2.0"), with_torch("2.0"))) == 1


# Speed


def test_a_thousand_trials_take_seconds():
    names = ("step_s", "step_mean_s", "stall_mean_s", "compute_s", "energy_step_j", "energy_j", "energy_baseload_j")
    inside = {"torch": {f"key{n}": n for n in range(60)}}
    cells = [
        Cell(
            {
                "platform": platform,
                "workload.model": model,
                "workload.workers": workers,
                "workload.batch": batch,
                "workload.device": "cuda",
            },
            {name: 1 + math.sin(len(name) + workers) / 9 for name in names},
            {"inside": inside},
        )
        for platform, model, workers, batch in product(
            ("bare", "docker", "qemu", "qemu+docker"), ("lenet5", "resnet18", "vgg11"), (0, 1, 4), (16, 32, 64)
        )
    ]
    made = stores(cells, n=10)
    assert len(made[0].records) == 1080

    begin_s = time.process_time()  # not of the clock on the wall: others may be at work on this machine
    found = answers(every_claim(), made)
    spent_s = time.process_time() - begin_s

    assert sum(each.word != "not measured" for each in found) >= 10
    assert spent_s < 60, f"{spent_s:.1f} s"


def test_a_mean_over_pairs_that_disagree_says_so_and_names_the_ends():
    disagree = containers([("lenet5", 0.5), ("resnet18", 0.01), ("vgg11", -0.4)])
    agree = containers([("lenet5", 0.5), ("vgg11", 0.3)])

    why = answer("s0.total-energy-rises", *stores(disagree)).why
    assert "over 8 blocks and 3 pairs that disagree (from -40." in why
    assert "% for VGG-11 to +50." in why or "% for VGG-11 to +49." in why
    assert "and 2 pairs (from +" in answer("s0.total-energy-rises", *stores(agree)).why


def test_what_fails_on_the_whole_and_surely_holds_for_one_pair_is_undecided_where_they_disagree():
    cells = containers([("lenet5", 0.5), ("resnet18", 0.01), ("vgg11", -0.4)])

    found = answer("s0.total-energy-rises", *stores(cells))

    assert found.high < 0
    assert found.word == "undecided"


def test_pairs_that_disagree_are_not_told_to_wait_for_more_blocks():
    cells = containers([("lenet5", 0.5), ("vgg11", -0.32)])

    found = answer("s0.total-energy-rises", *stores(cells, noise=0.03))

    assert found.word == "undecided"
    assert "(undecided: more of them would not make them agree)" in found.why
