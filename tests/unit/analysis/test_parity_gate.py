"""What differs between the software of two sides, and what of it matters.

Trials that do not belong together.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis_figures import record
from tare.analysis.parity import (
    compared,
    differences,
    is_same,
    mixed_populations,
    not_deterministic,
    other_computation,
    other_rounding,
    rule_for,
    taints,
)
from tare.records.model import Record

FINGERPRINT = {
    "mount_options": {"python": "discard relatime"},
    "kernel": "6.18",
    "libc": "glibc 2.36",
    "libraries": {"libtorch_cpu.so": "5c5f"},
    "limits": {"nofile": [20000, 20000]},
    "process": {"CapEff": "01ff", "Cpus_allowed_list": "0-1", "NoNewPrivs": "0", "Seccomp": "0"},
    "python": {"executable": "/usr/bin/python3", "version": "3.11.7"},
    "torch": {"version": "2.13.0", "git": "cf30", "threads": 2, "optimiser": "foreach", "blas": "open"},
    "env": {"OMP_NUM_THREADS": "1", "MALLOC_TOP_PAD_": "67108864"},
}


def with_fact(dotted, value):
    facts = {key: dict(part) if isinstance(part, dict) else part for key, part in FINGERPRINT.items()}
    *parents, last = dotted.split(".", 1)
    place = facts[parents[0]] if parents else facts
    place[last] = value
    return facts


def found(dotted, value, by="platform"):
    ours = [record("docker", facts={"inside": with_fact(dotted, value)})]
    theirs = [record("bare", facts={"inside": FINGERPRINT})]
    return differences(ours, theirs, level="docker", against="bare", by=by)


MATTERS = {
    "torch.version": "2.12.0",
    "torch.git": "beef",
    "torch.threads": 8,
    "torch.optimiser": "for-loop",
    "torch.blas": "mkl",
    "libraries.libtorch_cpu.so": "abcd",
    "env.MALLOC_TOP_PAD_": "1",
    "env.OMP_NUM_THREADS": "4",
    "env.LD_LIBRARY_PATH": "/opt",
    "python.version": "3.10.0",
    "libc": "musl 1.2",
    "process.Cpus_allowed_list": "0",
    "cgroup.cpu_quota": 0.5,
}
NATURE = {
    "mount_options.python": "relatime ro",  # of the root that a container gets
    "process.Seccomp": "2",
    "process.CapEff": "00",
    "process.NoNewPrivs": "1",
    "kernel": "6.1",
    "hostname": "c0ff",
}


@pytest.mark.parametrize(("key", "value"), MATTERS.items())
def test_a_difference_that_could_explain_times_taints_in_words(key, value):
    facts = differences(
        [record("docker", facts={"inside": FINGERPRINT | {"other": {}} | _nested(key, value)})],
        [record("bare", facts={"inside": FINGERPRINT})],
        level="docker",
        against="bare",
        by="platform",
    )

    (difference,) = facts
    assert difference.matters
    (sentence,) = taints(facts)
    assert key in sentence and difference.why in sentence and "docker has" in sentence


def _nested(key, value):
    first, _, rest = key.partition(".")
    return {first: {**FINGERPRINT.get(first, {}), rest: value}} if rest else {first: value}


@pytest.mark.parametrize(("key", "value"), NATURE.items())
def test_what_a_platform_is_by_nature_is_reported_and_taints_nothing(key, value):
    (difference,) = found(key, value)

    assert not difference.matters
    assert taints([difference]) == []


def test_an_unknown_key_is_reported_and_taints_nothing():
    (difference,) = found("limits.nofile", [1, 1])

    assert (difference.key, difference.matters) == ("limits.nofile", False)


def test_the_reason_fits_the_key():
    assert "optimiser" in rule_for("torch.optimiser").why
    assert "threads" in rule_for("torch.interop_threads").why
    assert "torch" in rule_for("torch.version").why
    assert "algebra" in rule_for("torch.mkldnn").why
    assert "library" in rule_for("libraries.libm.so.6").why
    assert not rule_for("env.CUDA_HOME").matters and rule_for("env.CUDA_LAUNCH_BLOCKING").matters


def test_equal_sides_differ_in_nothing():
    assert found("kernel", "6.18") == []


def test_what_is_compared_is_no_taint():
    (difference,) = found("torch.threads", 8, by="workload.threads")

    assert not difference.matters
    assert "what is compared" in difference.why


def test_a_key_that_only_one_side_has_is_a_difference():
    (difference,) = found("env.LD_PRELOAD", "libjemalloc.so")

    assert (difference.ours, difference.theirs, difference.matters) == ("libjemalloc.so", None, True)
    assert "bare has none" in taints([difference])[0]
    assert "memory allocator" in difference.why


def test_a_preloaded_library_is_called_an_allocator_only_where_it_is_one():
    (difference,) = found("env.LD_PRELOAD", "libgomp.so.1")

    assert difference.matters
    assert "allocator" not in difference.why and "loaded before all others" in difference.why


def test_a_side_without_a_fingerprint_is_not_compared():
    assert (
        differences([record("docker")], [record(facts={"inside": FINGERPRINT})], level="d", against="b", by="p") == []
    )


def test_differences_that_matter_come_first():
    ours = [record("docker", facts={"inside": with_fact("kernel", "6.1") | {"numpy": {"version": "2"}}})]

    both = differences(ours, [record(facts={"inside": FINGERPRINT})], level="docker", against="bare", by="platform")

    assert [each.matters for each in both] == [True, False]


def test_a_quota_that_the_study_gave_is_what_is_compared_and_no_taint() -> None:
    def side(quota: float | None) -> list[Record]:
        settings = {"platform": "bare", "platform.quota": quota}
        inside = {"cgroup": {"cpu_quota_cores": quota}} if quota else {"cgroup": {"memory_limit_bytes": 1}}
        return [Record("t", 1, "s", 0, 0, 0, settings, "ok", facts={"inside": inside})]

    def matter(ours: list[Record], theirs: list[Record]) -> list[str]:
        found = differences(ours, theirs, level="a", against="b", by="platform")
        return [each.key for each in found if each.matters]

    assert matter(side(0.5), side(None)) == []
    surprise = [replace(record, settings={"platform": "bare"}) for record in side(0.5)]
    assert matter(surprise, [replace(record, settings={"platform": "bare"}) for record in side(None)]) == [
        "cgroup.cpu_quota_cores"
    ]


def accelerated(level: str, accel: str | None) -> Record:
    place = {} if accel is None else {"place": {"accel": accel}}
    return record(level, facts={"inside": FINGERPRINT, **place})


@pytest.mark.parametrize(("ours", "theirs"), [("tcg", None), ("tcg", "kvm"), (None, "tcg")])
def test_emulation_against_anything_else_is_a_taint(ours, theirs):
    sides = [accelerated("qemu", ours)], [accelerated("bare", theirs)]
    (sentence,) = taints(differences(*sides, level="qemu", against="bare", by="platform"))

    assert sentence.startswith("place.accel differs (one is emulated")


@pytest.mark.parametrize(("ours", "theirs"), [("kvm", None), ("tcg", "tcg"), ("kvm", "kvm")])
def test_a_virtual_machine_that_the_processor_runs_may_be_compared(ours, theirs):
    sides = [accelerated("qemu", ours)], [accelerated("bare", theirs)]

    assert differences(*sides, level="qemu", against="bare", by="platform") == []


def by_setting(name, ours, theirs, inside, **both):
    """The keys that matter where two sides differ in one setting, ours with these facts beside the usual."""
    sides = [
        [record(settings={**both, name: value}, facts={"inside": facts})]
        for value, facts in ((ours, FINGERPRINT | inside), (theirs, FINGERPRINT))
    ]
    return [each.key for each in differences(*sides, level="a", against="b", by=name) if each.matters]


TORCH, LIBRARIES = FINGERPRINT["torch"], FINGERPRINT["libraries"]
ON_A_GPU = {
    "torch": {**TORCH, "gpu": {"name": "H200", "cudnn": 91900}, "optimiser": "fused"},
    "libraries": {**LIBRARIES, "libcudart.so.12": "77aa"},
}


def test_the_stack_of_a_gpu_belongs_to_the_device_that_is_compared():
    assert by_setting("workload.device", "cuda", "cpu", ON_A_GPU, workload="torch_infer") == []


def test_the_optimiser_of_training_is_a_difference_of_its_own_on_another_device():
    assert by_setting("workload.device", "cuda", "cpu", ON_A_GPU, workload="torch_train") == ["torch.optimiser"]


def test_another_build_of_a_library_that_both_have_does_not_come_with_the_device():
    other = {"libraries": {"libtorch_cpu.so": "beef"}}

    assert by_setting("workload.device", "cuda", "cpu", other, workload="torch_infer") == ["libraries.libtorch_cpu.so"]


def test_the_same_stack_taints_where_the_device_is_not_what_is_compared():
    found = by_setting("platform", "docker", "bare", ON_A_GPU, workload="torch_infer")

    assert set(found) == {"torch.gpu.name", "torch.gpu.cudnn", "torch.optimiser", "libraries.libcudart.so.12"}


MORE_THREADS = {"torch": {**TORCH, "threads": 8, "interop_threads": 8}}


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("platform.cores", 8, 2),
        ("platform.pin", True, False),
        ("platform.cpuset", "0-7", "0-1"),
        ("platform.leave_idle", 0, 6),
        ("platform.quota", 8.0, 2.0),
        ("control.power_mode.cores", 8, 2),
    ],
)
def test_threads_that_nobody_set_follow_the_cores_that_are_compared(name, ours, theirs):
    assert by_setting(name, ours, theirs, MORE_THREADS) == []
    assert "torch.threads" in by_setting(name, ours, theirs, MORE_THREADS, **{"workload.threads": 2})


def test_threads_do_not_follow_a_setting_that_only_sounds_like_a_placement():
    assert "torch.threads" in by_setting("workload.pin", True, False, MORE_THREADS)


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


SIDE = {
    "python": {"version": "3.11.7", "executable": "/usr/bin/python3"},
    "libc": "glibc 2.36",
    "torch": {"version": "2.13.0", "threads": 2},
    "process": {"Seccomp": "0"},
}


def other(**changed: object) -> dict[str, object]:
    return {**SIDE, **changed}


def test_equal_sides_are_the_same():
    lines = compared(SIDE, SIDE)

    assert is_same(lines)
    assert all(line.same for line in lines)


def test_where_the_program_lies_and_what_the_platform_is_do_not_matter():
    lines = compared(SIDE, other(python={"version": "3.11.7", "executable": "/opt/py"}, process={"Seccomp": "2"}))

    assert is_same(lines)
    assert {line.key for line in lines if not line.same} == {"python.executable", "process.Seccomp"}


def test_another_torch_or_none_matters_and_comes_first():
    for torch in ({"version": "2.12.0", "threads": 2}, {}):
        lines = compared(SIDE, other(torch=torch))
        assert not is_same(lines)
        assert lines[0].key.startswith("torch.")
        assert lines[0].matters


def test_a_side_that_says_nothing_proves_nothing():
    assert not is_same(compared({}, {}))
