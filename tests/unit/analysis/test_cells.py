"""Levels, and what else tells cells apart."""

import pytest

from analysis_figures import FakeStore, record
from tare.analysis.cells import baseline_level, cells, placed, resolve_factor
from tare.analysis.weighing import weigh
from tare.base.errors import StudyError
from tare.records.model import Record


def labels(records, by):
    grouped = cells(records, by)
    return [grouped.label(each) for each in records]


def test_one_factor_needs_no_more_than_its_level():
    assert labels([record("bare"), record("docker")], "platform") == ["bare", "docker"]


def test_settings_that_belong_to_a_platform_are_not_another_factor():
    docker = record("docker", settings={"platform.image": None, "platform.cpus": 1})

    assert labels([record("bare"), docker], "platform") == ["bare", "docker"]


def test_a_platform_that_was_run_in_two_ways_is_two_levels():
    on, off = (record("docker", settings={"platform.seccomp": seccomp}) for seccomp in (True, False))

    assert labels([record("bare"), on, off], "platform") == [
        "bare",
        "docker, seccomp on",
        "docker, seccomp off",
    ]


def test_another_factor_that_varies_is_carried_by_the_label():
    made = [
        record(platform, settings={"workload.batch": batch}) for platform in ("bare", "docker") for batch in (16, 64)
    ]

    assert labels(made, "platform")[-1] == "docker, batch 64"
    assert labels(made, "workload.batch")[-1] == "docker, batch 64"


def test_settings_that_only_follow_another_are_not_repeated():
    made = [
        record(platform, settings={"workload.batch": batch, "platform.image": None if platform == "bare" else "pt"})
        for platform in ("bare", "docker")
        for batch in (16, 64)
    ]

    assert labels(made, "workload.batch")[-1] == "docker, batch 64"


def test_values_that_are_lists_can_be_told_apart():
    made = [record("bare", settings={"workload.argv": argv}) for argv in (["./a"], ["./a", "b"], ["./a+b"])]

    assert labels(made, "workload.argv") == ["a", "a, b", "a+b"]


def test_a_list_of_names_is_read_as_a_person_would_write_it():
    made = [record("runc", settings={"platform.isolation": layers}) for layers in ([], ["cpu"], ["cpu", "pids"])]

    assert labels(made, "platform.isolation") == ["isolation none", "isolation cpu", "isolation cpu+pids"]


def test_a_factor_may_be_named_by_its_last_word():
    assert resolve_factor([record()], "batch") == "workload.batch"
    assert resolve_factor([record()], "platform") == "platform"


def test_a_last_word_of_two_settings_is_refused_with_both():
    with pytest.raises(StudyError, match=r"any of control\.cpu\.batch, workload\.batch"):
        resolve_factor([record(settings={"control.cpu.batch": 1})], "batch")


def test_a_factor_that_no_trial_has_is_named_with_the_nearest():
    with pytest.raises(StudyError, match=r"No factor 'platfrom'.*Did you mean 'platform'\?"):
        resolve_factor([record()], "platfrom")


def modes(*tuples):
    return [
        record("bare", settings={f"control.power_mode.{name}": value for name, value in each.items()})
        for each in tuples
    ]


def test_a_mode_s_name_and_its_clock_are_one_factor_and_not_two():
    made = modes({"mode": "GPU 990 MHz", "gpu_mhz": 990}, {"mode": "GPU 1980 MHz", "gpu_mhz": 1980})

    assert labels(made, "control.power_mode.mode") == ["GPU 990 MHz", "GPU 1980 MHz"]
    assert labels(made, "control.power_mode.gpu_mhz") == ["GPU 990 MHz", "GPU 1980 MHz"]


def test_what_a_mode_sets_besides_is_another_factor_and_the_name_of_both_is_none():
    made = modes(*({"mode": f"{c} cores, {g}", "cores": c, "gpu_mhz": g} for c in (2, 4) for g in (990, 1980)))

    assert labels(made, "control.power_mode.gpu_mhz")[0] == "GPU 990 MHz, 2 cores"


def test_data_that_go_with_a_model_are_still_said():
    made = [
        record("bare", settings={"workload.model": model, "workload.data": data})
        for model, data in (("lenet5", "mnist"), ("resnet18", "cifar10"))
    ]

    assert labels(made, "workload.model") == [
        "LeNet-5 training, MNIST data",
        "ResNet-18 training, CIFAR-10 data",
    ]


def test_a_baseline_may_be_written_without_the_fraction_that_the_setting_takes():
    half, whole = (record(settings={"platform.quota": quota}) for quota in (0.5, 2.0))
    grouped = cells([half, whole], "platform.quota")

    assert baseline_level([half, whole], grouped, 2) == grouped.level(whole)
    assert baseline_level([half, whole], grouped, 3) == "3"
    assert baseline_level([half, whole], grouped, "most") == "most"


def varied_command(batch: int, block: int = 0, platform: str = "bare", **more: object) -> Record:
    argv = ["python3", "main.py", "--batch-size", str(batch)]
    own = {"workload": "command", "workload.argv": argv, "workload.batch": batch, **more}
    return record(platform, block, 0.001 * batch, settings=own)


def test_the_first_of_several_commands_is_the_baseline_of_the_others():
    argvs = [["python3", "/opt/work.py", name] for name in ("bert-large", "lenet")]
    made = [record("bare", settings={"workload": "command", "workload.argv": argv}) for argv in argvs]
    label = cells(made, "workload.argv")
    assert baseline_level(made, label, argvs[0]) == label.level(made[0])
    assert baseline_level([record("qemu+docker")], cells([record("qemu+docker")], "platform"), ["qemu", "docker"]) == (
        "qemu+docker"
    )


def test_levels_that_a_command_varies_are_compared_and_sorted_as_numbers_against_the_first_listed():
    listed = {"workload": [{"command": {"vary": {"batch": each}}} for each in (16, 8, 64)]}
    made = [
        varied_command(batch, block, platform, **{"workload.label": f"MNIST {batch}"})
        for block in range(2)
        for platform in ("docker", "bare")
        for batch in (64, 8, 16)
    ]
    found = weigh(FakeStore(made, {"study": "s", **listed}), by="batch")
    assert [(each.level, each.against) for each in found.comparisons] == [
        (f"MNIST {batch} {where}", f"MNIST 16 {where}") for where in ("on bare metal", "in docker") for batch in (8, 64)
    ]
    by_platform = weigh(FakeStore(made, {"study": "s", **listed}))
    assert [each.level for each in by_platform.comparisons] == [f"MNIST {batch} in docker" for batch in (8, 16, 64)]


def test_a_container_in_a_machine_is_placed_as_its_machine_is_and_found_by_its_cores():
    bare = [record("bare", settings={"platform.cores": cores}) for cores in (2, 4)]
    inside = [
        record("qemu+docker", settings={"platform.0.qemu.cores": cores, "platform.1.docker.cores": None})
        for cores in (2, 4)
    ]

    found = [placed(each) for each in (*bare, *inside)]

    assert [each.settings["platform.cores"] for each in found] == [2, 4, 2, 4]
    assert not any(name.endswith("docker.cores") or name.endswith("qemu.cores") for name in found[-1].settings)
    assert {cells(found, "platform.cores").level(each) for each in found} == {"2 cores", "4 cores"}


def test_what_an_inner_storey_limits_further_keeps_its_name():
    inner = {"platform.0.qemu.cores": 4, "platform.1.docker.cores": 2, "platform.1.docker.pin": False}

    found = placed(record("qemu+docker", settings=inner)).settings

    assert (found["platform.cores"], found["platform.1.docker.cores"]) == (4, 2)
    assert found["platform.pin"] is False
