"""Four words, and what each takes."""

import math
from dataclasses import replace

import numpy as np
import pytest

from analysis_figures import noisy, side
from tare.analysis.compare import compare, word
from tare.analysis.estimators import mann_whitney, welch_t
from tare.analysis.model import Measurement
from tare.analysis.sentences import note_text
from tare.base.errors import StudyError

STEADY = [1.00, 1.01, 0.99, 1.02, 0.98, 1.00, 1.01, 0.99]


def only(measurements, **options):
    (found,) = compare(measurements, **{"against": "bare", "margin": 0.05, **options})
    return found


def times(factor, values=STEADY):
    return [factor * value for value in values]


def test_a_level_that_takes_longer_in_every_block_is_slower():
    found = only(noisy(8, effect=0.2))

    assert found.verdict == "slower"
    assert found.effect == pytest.approx(0.2, abs=0.02)
    assert 0.05 < found.low < 0.2 < found.high
    assert (found.n, found.paired, found.confidence) == (8, True, 0.95)


def test_a_level_that_takes_less_time_is_faster():
    found = only(noisy(8, effect=-0.2))

    assert found.verdict == "faster"
    assert found.effect == pytest.approx(-0.2, abs=0.02)


def test_an_interval_inside_the_margin_is_equivalent_also_when_it_leaves_out_zero():
    found = only(noisy(12, effect=0.02, cv=0.002))

    assert found.low > 0
    assert found.verdict == "equivalent"
    assert found.tost_p < 0.025


def test_an_interval_that_holds_zero_and_passes_the_margin_cannot_tell_and_says_how_many_more():
    found = only(noisy(6, cv=0.08))

    assert found.verdict == "cannot_tell"
    assert found.low < 0 < found.high
    assert found.more_trials > 0


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.05, 0.05, "equivalent"),
        (0.01, 0.05, "equivalent"),
        (0.01, 0.0501, "slower"),
        (-0.0501, -0.01, "faster"),
        (0.0, 0.06, "cannot_tell"),
        (-0.06, 0.0, "cannot_tell"),
        (-0.06, 0.06, "cannot_tell"),
        (0.0, 0.0, "equivalent"),
    ],
)
def test_the_word_follows_from_the_interval_and_the_margin(low, high, expected):
    assert word(low, high, 0.05) == expected


def test_drift_that_both_sides_share_does_not_widen_a_paired_interval():
    steady, drifting = only(noisy(8, effect=0.1, drift=0)), only(noisy(8, effect=0.1, drift=0.5))

    assert drifting.high - drifting.low == pytest.approx(steady.high - steady.low, rel=1e-6)


def test_without_blocks_the_sides_are_two_samples():
    found = only(side("bare", STEADY, blocks=False) + side("docker", times(1.3), blocks=False))

    assert (found.verdict, found.paired, found.n) == ("slower", False, 8)
    assert found.effect == pytest.approx(0.3, abs=1e-9)
    assert "Mann-Whitney" in found.method


def test_sides_of_unequal_size_are_compared_by_the_smaller():
    found = only(side("bare", STEADY, blocks=False) + side("docker", times(1.3, STEADY * 3), blocks=False))

    assert found.n == 8
    assert found.verdict == "slower"
    assert found.effect == pytest.approx(0.3)


@pytest.mark.parametrize("blocks", [True, False])
def test_fewer_than_six_get_no_interval_and_no_claim(blocks):
    found = only(side("bare", STEADY[:5], blocks=blocks) + side("docker", times(2, STEADY[:5]), blocks=blocks))

    assert (found.low, found.high, found.mde, found.p) == (None, None, None, None)
    assert found.verdict == "cannot_tell"
    assert found.more_trials == 1
    assert found.effect == pytest.approx(1.0)
    assert any("no 95 % interval" in note and "1 more" in note for note in map(note_text, found.notes))


def test_identical_values_below_six_are_not_called_equivalent():
    found = only(side("bare", [1.0] * 5) + side("docker", [1.0] * 5))

    assert (found.verdict, found.effect) == ("cannot_tell", 0.0)


def test_values_that_never_vary_collapse_the_interval_and_are_equivalent():
    found = only(side("bare", [1.0] * 6) + side("docker", [1.0] * 6))

    assert (found.effect, found.low, found.high, found.mde) == (0.0, 0.0, 0.0, 0.0)
    assert found.verdict == "equivalent"


@pytest.mark.parametrize("blocks", [True, False])
def test_values_that_never_vary_and_differ_are_slower_by_exactly_that(blocks):
    found = only(side("bare", [1.0] * 6, blocks=blocks) + side("docker", [1.07] * 6, blocks=blocks))

    assert (found.effect, found.low, found.high) == pytest.approx((0.07, 0.07, 0.07))
    assert found.verdict == "slower"


def test_blocks_that_miss_a_side_are_left_out_and_counted():
    found = only(side("bare", STEADY) + side("docker", times(1.2))[:6] + [Measurement("docker", 1.0, "other")])

    assert found.n == 6
    assert "docker: 3 blocks left out: one of the two sides is missing there." in [*map(note_text, found.notes)]


def test_several_trials_in_a_block_count_once_by_their_median():
    tripled = [Measurement(m.level, m.value * f, m.block) for m in side("bare", STEADY) for f in (1, 1.5, 0.5)]

    found = only(tripled + side("docker", times(1.2)))

    assert found.n == 8
    assert found.effect == pytest.approx(0.2)
    assert any("their median is used" in note for note in map(note_text, found.notes))


def test_sides_without_a_common_block_get_no_claim():
    found = only(side("bare", STEADY) + [Measurement("docker", 2.0, f"later {n}") for n in range(8)])

    assert (found.n, found.low, found.verdict) == (0, None, "cannot_tell")
    assert "compare.no-common-block" in [note.code for note in found.notes]


def test_trials_of_which_some_have_no_block_are_not_paired():
    found = only(side("bare", STEADY) + side("docker", times(1.2), blocks=False))

    assert not found.paired
    assert any("not block by block" in note for note in map(note_text, found.notes))


def test_the_noise_floor_is_the_effect_of_the_baseline_on_itself():
    found = only(noisy(8, effect=0.2) + side("bare", [m.value * 1.03 for m in noisy(8)[:8]], twin=1))

    assert found.aa_floor == pytest.approx(0.03)
    assert found.verdict == "slower"
    assert found.theirs.n == 8


def test_a_difference_no_larger_than_the_noise_floor_is_not_claimed():
    base = noisy(8, effect=0.12, cv=0.002)  # 7.7 % above the mean of the baseline's two runs

    found = only(base + side("bare", [m.value * 1.08 for m in base[:8]], twin=1))

    assert found.low > 0 and found.high > 0.05
    assert found.verdict == "cannot_tell"
    assert found.more_trials >= 1
    assert any("two runs of the same thing differed by 8.0 %" in note for note in map(note_text, found.notes))


def test_the_noise_floor_has_an_upper_bound_as_one_draw_may_be_small_by_luck():
    base = noisy(8, effect=0.2)
    twin = [m.value * (1.02 if place % 2 else 0.98) for place, m in enumerate(base[:8])]

    found = only(base + side("bare", twin, twin=1))

    assert found.aa_floor == pytest.approx(0.0, abs=0.001)
    assert 0.015 <= found.aa_most <= 0.025


def test_both_runs_of_a_baseline_count_where_it_was_run_twice():
    base = noisy(8, effect=0.2)

    found = only(base + side("bare", [m.value * 1.10 for m in base[:8]], twin=1))

    assert found.effect == pytest.approx(1.2 / 1.05 - 1, abs=0.02)
    assert found.n == 8
    assert not any("several trials in a block" in note for note in map(note_text, found.notes))


@pytest.mark.parametrize("spike", [1.0, 10.0])
def test_the_estimate_is_the_robust_one_also_with_three_levels_and_six_blocks(spike):
    bare = side("bare", [1.0, 1.001, 0.999, 1.002, 0.998, 1.0])
    docker = side("docker", [0.99, 0.991, 0.989, 0.992, 0.988, 0.99 * spike])
    podman = side("podman", [1.0, 1.002, 0.998, 1.001, 0.999, 1.0])

    found, _ = compare(bare + docker + podman, against="bare", margin=0.05, resamples=0)

    assert found.effect == pytest.approx(-0.01, abs=0.002)  # a mean of logs would make +45 % of one spike
    assert found.low <= found.effect <= found.high
    assert found.verdict == ("equivalent" if spike == 1 else "cannot_tell")


def timed(measurements, started, later=()):
    """A trial a minute; those that are named (level, block) again an hour later."""
    return [
        replace(m, started_s=60.0 * (2 * int(m.block) + started[m.level]) + 3600 * ((m.level, m.block) in later))
        for m in measurements
    ]


def test_a_block_of_which_one_side_was_run_again_an_hour_later_is_left_out_and_that_is_said():
    values = noisy(8, effect=0.2, cv=0.001)
    values = [replace(m, value=3 * m.value) if (m.level, m.block) == ("docker", "3") else m for m in values]

    apart = only(timed(values, {"bare": 0, "docker": 1}, {("docker", "3")}))
    whole = only(timed(values, {"bare": 0, "docker": 1}, {("docker", "3"), ("bare", "3")}))

    assert (apart.n, whole.n) == (7, 8)
    (note,) = [note for note in apart.notes if note.code == "compare.block-apart"]
    assert "1 block has trials that began up to 61 min apart" in note.sentence
    assert not any(note.code == "compare.block-apart" for note in whole.notes)


def test_trials_of_other_levels_that_take_long_may_lie_between():
    values = timed(noisy(8, effect=0.2), {"bare": 0, "docker": 1})
    values = [replace(m, started_s=m.started_s + 600 * ((m.level, m.block) == ("docker", "3"))) for m in values]

    assert only(values).n == 7
    assert only([replace(m, reach_s=330.0) for m in values]).n == 8


def test_blocks_that_are_as_long_as_the_others_stay_blocks():
    values = timed(
        noisy(8, effect=0.2), {"bare": 0, "docker": 90}
    )  # each an hour and a half: that is its trials' length

    assert only(values).n == 8


def test_the_noise_floor_does_not_undo_an_equivalence():
    base = noisy(12, cv=0.002)

    found = only(base + side("bare", [m.value * 1.03 for m in base[:12]], twin=1))

    assert found.verdict == "equivalent"


def three_levels(n, effects=(0.3, 0.0, 0.0), cv=0.01, seed=4):
    rng = np.random.default_rng(seed)
    made = side("bare", np.exp(rng.normal(0, cv, n)).tolist())
    for place, effect in enumerate(effects):
        made += side(f"level {place}", (np.exp(rng.normal(0, cv, n)) * (1 + effect)).tolist())
    return made


def test_a_family_is_corrected_by_holm_and_says_so():
    found = compare(three_levels(10), against="bare", margin=0.05)

    assert [each.level for each in found] == ["level 0", "level 1", "level 2"]
    assert found[0].confidence == pytest.approx(1 - 0.05 / 3)
    assert found[1].confidence == found[2].confidence == pytest.approx(1 - 0.05 / 2)
    assert all(
        any(note.startswith("3 comparisons are judged together") for note in map(note_text, each.notes))
        for each in found
    )


def test_where_six_blocks_cannot_reach_what_holm_asks_the_interval_is_students_and_says_so():
    found = compare(three_levels(6), against="bare", margin=0.05)

    assert all("t interval" in each.method for each in found)
    assert all(any("cannot reach" in note for note in map(note_text, each.notes)) for each in found)
    assert found[0].verdict == "slower"


def test_the_level_that_ranks_cannot_reach_is_the_strictest_that_was_needed():
    """Holm judges the last of a family at 95 %, which six blocks reach by ranks alone; what they miss is 98.3 %."""
    notes = [note_text(note) for each in compare(three_levels(6), against="bare", margin=0.05) for note in each.notes]

    said = [note for note in notes if "cannot reach" in note]
    assert len(said) == 3 and all("6 blocks cannot reach 98.3 % by ranks alone" in note for note in said)


def test_a_level_with_too_few_trials_does_not_make_the_others_pay():
    few = [m for m in three_levels(8) if m.level != "level 2" or int(m.block) < 3]

    found = compare(few, against="bare", margin=0.05)

    assert found[0].confidence == pytest.approx(1 - 0.05 / 2)
    assert (found[2].verdict, found[2].low) == ("cannot_tell", None)


@pytest.mark.parametrize("n", [6, 8, 12])
def test_words_agree_with_holm(n):
    for seed in range(30):
        found = compare(three_levels(n, (0.02, 0.01, 0.0), seed=seed), against="bare", margin=0.0, resamples=0)
        for each in found:
            assert (each.verdict in ("slower", "faster")) == (each.p <= 1 - each.confidence + 1e-12)


def test_medians_and_the_ratio_of_medians_stand_beside_the_headline():
    found = only(noisy(8, effect=0.2))

    assert found.theirs.n == found.ours.n == 8
    assert found.ratio_of_medians.value == pytest.approx(found.ours.value / found.theirs.value)
    assert found.ratio_of_medians.low < found.ratio_of_medians.value < found.ratio_of_medians.high


def test_of_a_rate_more_is_faster_and_it_is_said():
    found = only(noisy(8, effect=0.2), metric="items_per_s")

    assert found.verdict == "faster"
    assert any("higher is better" in note for note in map(note_text, found.notes))


def test_the_baseline_is_bare_where_none_is_named_else_the_first_and_it_is_said():
    (found,) = compare(list(reversed(noisy(8))), margin=0.05)
    (other,) = compare([Measurement(m.level.replace("bare", "host"), m.value, m.block) for m in noisy(8)], margin=0.05)

    assert (found.against, other.against) == ("bare", "host")
    assert any("'host'" in note for note in map(note_text, other.notes))


def test_the_noise_of_the_run_sets_the_smallest_effect_it_could_see():
    quiet, loud = only(noisy(8, cv=0.005)), only(noisy(8, cv=0.05))

    assert 0 < quiet.mde < 0.02 < loud.mde


def test_one_spike_that_does_not_move_the_interval_does_not_blind_the_smallest_effect_either():
    plain = noisy(20, effect=0.03, cv=0.005)
    spiked = [replace(m, value=m.value * 10) if m.level == "docker" and m.block == "3" else m for m in plain]

    found = only(spiked, margin=0.01)

    assert found.high - found.low < 0.01
    assert found.mde < 1.5 * only(plain, margin=0.01).mde < 0.01


def test_one_spike_does_not_multiply_the_trials_that_are_asked_for():
    plain = noisy(20, effect=0.002, cv=0.005)
    spiked = [replace(m, value=m.value * 10) if m.level == "docker" and m.block == "3" else m for m in plain]

    found, without = only(spiked, margin=0.003), only(plain, margin=0.003)

    assert found.verdict == without.verdict == "cannot_tell"
    assert found.more_trials is not None and found.more_trials <= without.more_trials < 200


def spiked_family(rng, blocks, n):
    """Three levels that are equal within 1 %, with one trial that is ten times as slow."""
    logs = rng.normal(0, 0.01, (3, n))
    logs[1, 3] += math.log(10)
    made = [m for level, row in zip(("bare", "docker", "runc"), logs, strict=True)
            for m in side(level, np.exp(row).tolist(), blocks=blocks)]  # fmt: skip
    return compare(made, against="bare", margin=0.05, resamples=0)[0]


@pytest.mark.parametrize("n", [8, 12])
@pytest.mark.parametrize("blocks", [True, False])
def test_one_spike_among_few_does_not_multiply_them_by_hundreds(blocks, n):
    """1,900 blocks at n = 8, and 3,300 at n = 12, where each spike was taken for noise."""
    rng = np.random.default_rng(50)
    decides = next(m for m in range(n, 60) if sum(
        spiked_family(rng, blocks, m).verdict != "cannot_tell" for _ in range(12)) >= 8)  # fmt: skip

    found = [spiked_family(rng, blocks, n) for _ in range(15)]
    open_ones = [n + each.more_trials for each in found if each.verdict == "cannot_tell"]
    assert not open_ones or decides / 3 <= np.median(open_ones) <= 3 * decides
    assert decides < 20 and (open_ones or not blocks)


@pytest.mark.parametrize("blocks", [True, False])
def test_trials_without_any_spread_could_see_everything(blocks):
    found = only(side("bare", [1.0] * 7, blocks=blocks) + side("docker", [1.07] * 7, blocks=blocks))

    assert found.mde == 0.0


UNLIKE = {
    "spreads": ([1.000, 1.001, 0.999, 1.002, 0.998, 1.000], [1.03, 1.00, 1.06, 1.04, 1.01, 1.09]),
    "sizes": (STEADY[:6], times(1.03, STEADY)),
}


@pytest.mark.parametrize(("bare", "docker"), UNLIKE.values(), ids=UNLIKE.keys())
def test_two_samples_unlike_in_size_or_spread_get_the_wider_interval_and_it_is_said(bare, docker):
    found = only(side("bare", bare, blocks=False) + side("docker", docker, blocks=False))

    each = [make(np.log(docker), np.log(bare)).interval(0.95) for make in (mann_whitney, welch_t)]
    assert found.low == pytest.approx(math.expm1(min(low for low, _ in each)))
    assert found.high == pytest.approx(math.expm1(max(high for _, high in each)))
    assert "the wider of the Mann-Whitney and the Welch t interval" in found.method
    assert any(
        note.startswith("docker: the two samples differ much in size or in spread")
        for note in map(note_text, found.notes)
    )


def test_unlike_samples_whose_ranks_cannot_reach_get_the_wider_of_range_and_t_and_that_is_said():
    bare, docker = UNLIKE["sizes"]
    found = only(side("bare", bare, blocks=False) + side("docker", docker, blocks=False), alpha=0.0005)

    assert found.method.startswith("Hodges-Lehmann of two samples, the wider of the range of ranks and the t interval")
    assert any("cannot reach" in note for note in map(note_text, found.notes))
    assert not any("differ much" in note for note in map(note_text, found.notes))


def test_two_samples_that_are_alike_are_compared_by_ranks_alone():
    found = only(side("bare", STEADY, blocks=False) + side("docker", times(1.3), blocks=False))

    assert "Welch" not in found.method
    assert not any("differ much" in note for note in map(note_text, found.notes))


@pytest.mark.parametrize("blocks", [True, False])
def test_values_that_are_equal_but_for_rounding_tie(blocks):
    tenths = [3 * 0.1, 0.1 + 0.2, 0.3 * 7 / 7, 0.6 / 2, 0.9 / 3, 1.2 - 0.9, 3 * 0.1, 0.1 + 0.2]
    found = only(side("bare", [0.3] * 8, blocks=blocks) + side("docker", tenths, blocks=blocks), margin=0.0)

    assert len(set(tenths)) > 1
    assert (found.effect, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)
    assert found.verdict == "equivalent"


@pytest.mark.parametrize("scale", [1, 3, 7, 0.1])
def test_the_scale_of_a_block_does_not_turn_a_tie_into_a_claim(scale):
    bare, docker = [10, 11, 12, 13, 10, 11, 12, 13], [11, 10, 13, 14, 11, 12, 13, 14]
    scales = [scale if block % 2 else 1 for block in range(8)]

    found = only(
        side("bare", [b * s for b, s in zip(bare, scales, strict=True)])
        + side("docker", [d * s for d, s in zip(docker, scales, strict=True)]),
        margin=0.0,
    )

    plain = only(side("bare", bare) + side("docker", docker), margin=0.0)
    assert (found.verdict, found.low, found.high, found.p) == (plain.verdict, plain.low, plain.high, plain.p)


@pytest.mark.parametrize("margin", [0.05, 0.03, 0.07, 0.2])
def test_an_interval_that_ends_on_the_margin_is_inside_it(margin):
    found = only(side("bare", [0.2] * 6) + side("docker", [0.2 * (1 + margin)] * 6), margin=margin)

    assert found.verdict == "equivalent"


def test_an_effect_far_below_the_noise_floor_does_not_ask_for_millions_of_trials():
    base = noisy(8, effect=0.2502, cv=1e-6)  # 0.02 % above the mean of the baseline's two runs

    found = only(base + side("bare", [m.value * 1.5 for m in base[:8]], twin=1), margin=0.0)

    assert (found.verdict, found.more_trials) == ("cannot_tell", None)
    assert any("does not exceed the noise" in note for note in map(note_text, found.notes))
    assert any("more than 10,000 trials" in note for note in map(note_text, found.notes))


def test_values_too_far_apart_for_any_ratio_are_refused():
    with pytest.raises(StudyError, match=r"'docker' and 'bare': the values run from 1e-200 to 1e\+200, too far apart"):
        only(side("bare", [1e-200] * 8) + side("docker", [1e200] * 8))


def test_an_unreachable_verdict_is_said_to_be_out_of_reach():
    found = only(noisy(8, cv=0.05), margin=0.0)

    if found.more_trials is None:
        assert any("more than 10,000 trials" in note for note in map(note_text, found.notes))
    none = only(side("bare", [1, 2, 1, 2, 1, 2]) + side("docker", [2, 1, 2, 1, 2, 1]), margin=0.0)
    assert none.verdict == "cannot_tell"
    assert any("more than 10,000 trials" in note for note in map(note_text, none.notes))


def test_a_level_that_does_not_exist_is_named_with_the_nearest():
    with pytest.raises(StudyError, match=r"No level 'baer'\. Did you mean 'bare'\? Available: bare, docker"):
        compare(noisy(8), against="baer", margin=0.05)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_value_that_no_ratio_can_be_made_of_is_refused_with_its_place(bad):
    with pytest.raises(StudyError, match=r"level 'docker', block 3.*more than zero"):
        compare([*noisy(8), Measurement("docker", bad, "3")], against="bare", margin=0.05)


@pytest.mark.parametrize("margin", [-0.1, math.nan, math.inf])
def test_a_margin_that_is_no_share_is_refused(margin):
    with pytest.raises(StudyError, match="margin"):
        compare(noisy(8), against="bare", margin=margin)


def test_nothing_and_one_level_are_no_comparison():
    with pytest.raises(StudyError, match="nothing to compare"):
        compare([], margin=0.05)
    with pytest.raises(StudyError, match="'bare' is the only level"):
        compare(side("bare", STEADY), margin=0.05)


def test_a_comparison_is_plain_data_for_json():
    plain = only(noisy(8)).as_json()

    keys = {"level", "against", "effect", "low", "high", "verdict", "margin", "n", "mde", "notes"}
    assert keys <= plain.keys()
