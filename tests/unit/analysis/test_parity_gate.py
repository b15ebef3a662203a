"""What differs between the software of two sides, and what of it matters."""

from dataclasses import replace

import pytest

from analysis_figures import record
from tare.analysis.parity import differences, rule_for, taints
from tare.records.model import Record

FINGERPRINT = {
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
