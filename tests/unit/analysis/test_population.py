"""Trials that do not belong together."""

from analysis_figures import record
from tare.analysis.parity import mixed_populations, not_deterministic, other_computation, other_rounding


def with_outcome(platform, block, **outcome):
    return record(platform, block, facts={"outcome": outcome})


def test_one_machine_and_one_software_is_one_population():
    records = [record(facts={"device": {"kernel": "6.1", "boot_id": str(n)}}) for n in range(3)]

    assert mixed_populations("bare", records) == []


def test_a_level_over_two_kernels_is_said():
    records = [record(facts={"device": {"kernel": kernel}}) for kernel in ("6.1", "6.12", "6.1")]

    (sentence,) = mixed_populations("bare", records)

    assert sentence.startswith("bare: its trials do not share one kernel (6.1, 6.12)")


def test_a_level_over_two_builds_of_torch_is_said():
    records = [record(facts={"inside": {"torch": {"version": version}}}) for version in ("2.12", "2.13")]

    (sentence,) = mixed_populations("docker", records)

    assert "torch.version" in sentence


def test_the_same_loss_in_every_block_is_the_same_computation():
    ours = [with_outcome("docker", block, loss_digest=f"seed{block}", steps=100) for block in range(3)]
    theirs = [with_outcome("bare", block, loss_digest=f"seed{block}", steps=100) for block in range(3)]

    assert other_computation(ours, theirs, level="docker", against="bare") == []


def test_another_loss_in_a_block_is_not_the_same_computation():
    ours = [with_outcome("docker", block, loss_digest=f"other{block}") for block in range(5)]
    theirs = [with_outcome("bare", block, loss_digest=f"seed{block}") for block in range(5)]

    (sentence,) = other_computation(ours, theirs, level="docker", against="bare")

    assert "docker ended with another loss than bare in 5 of 5 blocks (block 0, 1, 2 ...)" in sentence


def test_another_number_of_steps_is_not_the_same_computation():
    (sentence,) = other_computation(
        [with_outcome("docker", 1, steps=50)], [with_outcome("bare", 1, steps=100)], level="docker", against="bare"
    )

    assert "another number of steps" in sentence


def test_a_program_that_says_nothing_of_its_loss_is_not_blamed():
    assert other_computation([record("docker")], [record("bare")], level="docker", against="bare") == []


def test_a_twin_that_ended_with_another_loss_shows_that_the_level_is_not_deterministic():
    firsts = [with_outcome("bare", block, loss_digest="a") for block in range(2)]
    twins = [record("bare", block, twin=1, facts={"outcome": {"loss_digest": "b"}}) for block in range(2)]
    same = [record("bare", block, twin=1, facts={"outcome": {"loss_digest": "a"}}) for block in range(2)]

    (sentence,) = not_deterministic("bare", [*firsts, *twins])

    assert sentence.startswith(
        "bare is not deterministic: its A/A repeat ended with another loss than itself in 2 of 2"
    )
    assert not_deterministic("bare", [*firsts, *same]) == []


def test_another_loss_with_other_numbers_of_threads_is_a_note_on_rounding_and_not_another_computation():
    def side(platform, threads, steps=100):
        return [with_outcome(platform, n, loss_digest=f"{platform}{n}", threads=threads, steps=steps) for n in range(3)]

    def judged(ours, theirs):
        sides = {"level": "1 core", "against": "2 cores"}
        return other_computation(ours, theirs, **sides), other_rounding(ours, theirs, **sides)

    tainted, (note,) = judged(side("runc", 1), side("bare", 2))
    assert tainted == []
    assert note.code == "compare.other-rounding"
    assert "1 and 2 threads" in note.sentence

    began = {"runc": 2.3010, "bare": 2.3011}
    near = [[with_outcome(name, 0, loss_digest=name, threads=n, first_loss=began[name])]
            for n, name in enumerate(began, 1)]  # fmt: skip
    assert judged(*near)[0] == [] and "began with the same" in judged(*near)[1][0].sentence
    far = [near[0], [with_outcome("bare", 0, loss_digest="bare", threads=2, first_loss=2.9)]]
    assert "another loss" in judged(*far)[0][0] and judged(*far)[1] == []

    (sentence,), notes = judged(side("runc", 2), side("bare", 2))
    assert "another loss" in sentence
    assert notes == []
    (sentence,), _ = judged(side("runc", 1, steps=50), side("bare", 2))
    assert "another number of steps" in sentence
