"""Labels for people: only what differs, in the order platform, workload, other settings, and no two the same.

Levels, and what else tells cells apart.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis_figures import FakeStore, record
from tare.analysis.cells import baseline_level, cells, placed, resolve_factor
from tare.analysis.labels import setting_words, shortened
from tare.analysis.weighing import weigh
from tare.analysis.work import unlike_work
from tare.base.errors import StudyError
from tare.records.model import Record


def labels_of(records, by):
    grouped = cells(records, by)
    return [grouped.label(each) for each in records]


def test_one_factor_needs_no_more_than_its_level():
    assert labels_of([record("bare"), record("docker")], "platform") == ["bare", "docker"]


def test_settings_that_belong_to_a_platform_are_not_another_factor():
    docker = record("docker", settings={"platform.image": None, "platform.cpus": 1})

    assert labels_of([record("bare"), docker], "platform") == ["bare", "docker"]


def test_a_platform_that_was_run_in_two_ways_is_two_levels():
    on, off = (record("docker", settings={"platform.seccomp": seccomp}) for seccomp in (True, False))

    assert labels_of([record("bare"), on, off], "platform") == [
        "bare",
        "docker, seccomp on",
        "docker, seccomp off",
    ]


def test_another_factor_that_varies_is_carried_by_the_label():
    made = [
        record(platform, settings={"workload.batch": batch}) for platform in ("bare", "docker") for batch in (16, 64)
    ]

    assert labels_of(made, "platform")[-1] == "docker, batch 64"
    assert labels_of(made, "workload.batch")[-1] == "docker, batch 64"


def test_settings_that_only_follow_another_are_not_repeated():
    made = [
        record(platform, settings={"workload.batch": batch, "platform.image": None if platform == "bare" else "pt"})
        for platform in ("bare", "docker")
        for batch in (16, 64)
    ]

    assert labels_of(made, "workload.batch")[-1] == "docker, batch 64"


def test_values_that_are_lists_can_be_told_apart():
    made = [record("bare", settings={"workload.argv": argv}) for argv in (["./a"], ["./a", "b"], ["./a+b"])]

    assert labels_of(made, "workload.argv") == ["a", "a, b", "a+b"]


def test_a_list_of_names_is_read_as_a_person_would_write_it():
    made = [record("runc", settings={"platform.isolation": layers}) for layers in ([], ["cpu"], ["cpu", "pids"])]

    assert labels_of(made, "platform.isolation") == ["isolation none", "isolation cpu", "isolation cpu+pids"]


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

    assert labels_of(made, "control.power_mode.mode") == ["GPU 990 MHz", "GPU 1980 MHz"]
    assert labels_of(made, "control.power_mode.gpu_mhz") == ["GPU 990 MHz", "GPU 1980 MHz"]


def test_what_a_mode_sets_besides_is_another_factor_and_the_name_of_both_is_none():
    made = modes(*({"mode": f"{c} cores, {g}", "cores": c, "gpu_mhz": g} for c in (2, 4) for g in (990, 1980)))

    assert labels_of(made, "control.power_mode.gpu_mhz")[0] == "GPU 990 MHz, 2 cores"


def test_data_that_go_with_a_model_are_still_said():
    made = [
        record("bare", settings={"workload.model": model, "workload.data": data})
        for model, data in (("lenet5", "mnist"), ("resnet18", "cifar10"))
    ]

    assert labels_of(made, "workload.model") == [
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


def labels(records, by="platform"):
    made = cells(records, by)
    return [made.label(each) for each in records]


def trained(platform, model, **more):
    settings = {"workload.model": model, "workload.classes": None if model == "lenet5" else 1000}
    return record(platform, settings=settings | {name.replace("__", "."): value for name, value in more.items()})


def command(*argv, platform="bare"):
    return record(platform, settings={"workload": "command", "workload.argv": list(argv)})


def test_a_workload_is_called_by_its_title_and_where_it_ran():
    made = [trained(platform, model) for platform in ("bare", "runc") for model in ("lenet5", "mobilenet_v3_large")]

    assert labels(made) == [
        "LeNet-5 training on bare metal",
        "MobileNetV3-L training on bare metal",
        "LeNet-5 training in runc",
        "MobileNetV3-L training in runc",
    ]


def test_language_models_are_called_by_their_size_or_their_weights():
    settings = {"platform": "bare", "workload.size": "small", "workload.batch": 4}
    tuned, generated, theirs = (
        replace(record("bare"), settings={**settings, "workload": workload, "workload.weights": weights})
        for workload, weights in (("finetune", None), ("generate", None), ("generate", "/models/gpt2-xl"))
    )

    assert labels([tuned, generated, theirs]) == [
        "GPT-2 small fine-tuning on bare metal",
        "GPT-2 small generation on bare metal",
        "GPT-2 of gpt2-xl generation on bare metal",
    ]


def test_the_order_does_not_depend_on_what_is_compared():
    made = [record(p, settings={"workload.model": m}) for p in ("bare", "runc") for m in ("lenet5", "vgg11")]

    assert labels(made, "workload.model") == labels(made)
    assert labels(made)[-1] == "VGG-11 training in runc"


def test_what_is_the_same_everywhere_is_not_named():
    made = [trained(platform, "resnet18", workload__workers=2) for platform in ("bare", "docker")]

    assert labels(made) == ["bare", "docker"]


def test_other_settings_come_last_and_have_plain_names():
    made = [
        trained("docker", "lenet5", workload__workers=workers, control__page_cache__state=cache)
        for workers in (1, 2)
        for cache in ("cold", "warm")
    ]

    assert labels(made)[0] == "docker, 1 worker, cold page cache"
    assert labels(made)[-1] == "docker, 2 workers, warm page cache"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("workload.batch", 16, "batch 16"),
        ("workload.workers", 1, "1 worker"),
        ("workload.classes", 1000, "1000 classes"),
        ("workload.steps_per_epoch", "200", "200 steps per epoch"),
        ("control.page_cache.state", "cold_every_epoch", "page cache cold in every epoch"),
        ("platform.quota", 0.9, "quota 0.9"),
        ("platform.cpus", 2.0, "2 CPUs"),
        ("platform.memory", 2**30, "memory 1 GiB"),
        ("platform.seccomp", False, "seccomp off"),
        ("platform.isolation", ["cpu", "pids"], "isolation cpu+pids"),
        ("control.page_cache.state", "cold", "cold page cache"),
        ("control.power_mode.gpu_mhz", 990, "GPU 990 MHz"),
        ("workload.duration", 60.0, "duration 60 s"),
        ("workload.data", "cifar10", "CIFAR-10 data"),
        ("workload.items", None, "items not set"),
        ("workload.idle_s", 1.5, "idle 1.5 s"),
        ("workload.my_own", "x", "my own x"),
    ],
)
def test_a_setting_reads_as_people_write_it(name, value, words):
    assert setting_words(name, value) == words


def test_a_command_is_called_by_its_script_and_what_differs():
    made = [command("python3", "/srv/train.py", "--lr", lr, "--epochs", "3") for lr in ("0.1", "0.01")]

    assert labels(made, "workload.argv") == ["train.py, lr 0.1", "train.py, lr 0.01"]
    assert labels([*made, command("./serve", "--port=1")], "workload.argv")[-1] == "serve, port 1"


def test_scripts_of_the_same_name_are_called_by_their_paths():
    made = [command("python3", f"/{folder}/train.py") for folder in ("old", "new")]

    assert labels(made, "workload.argv") == ["python3 /old/train.py", "python3 /new/train.py"]


def test_settings_of_the_same_name_say_whose_they_are():
    made = [record(settings={"workload.pin": pin, "platform.pin": other}) for pin in (True, False) for other in (1, 2)]

    assert labels(made)[0] == "bare, platform pin 1, workload pin on"
    assert len(set(labels(made))) == 4


def test_settings_that_read_the_same_are_told_apart_by_their_values():
    made = [record(settings={"workload.model": model}) for model in ("/a/net.onnx", "/b/net.onnx")]
    first, second = labels(made)

    assert first == "net.onnx training on bare metal, workload.model=/a/net.onnx"
    assert second == "net.onnx training on bare metal, workload.model=/b/net.onnx"


def test_long_names_are_cut_in_the_middle_and_stay_different():
    made = [command("./run", "x" * 200 + middle + "y" * 200) for middle in ("1", "2")]
    first, second = labels(made, "workload.argv")

    assert first != second
    assert shortened(["a" * 100, "b"], 20) == ["aaaaaaaaaa…aaaaaaaaa", "b"]
    assert len(set(shortened(["p" * 50 + str(n) + "q" * 50 for n in range(9)], 20))) == 9


def test_a_baseline_may_be_named_by_its_label_or_by_its_settings():
    on, off = (record("docker", settings={"platform.seccomp": seccomp}) for seccomp in (True, False))
    made = cells([on, off], "platform")

    assert baseline_level([on, off], made, "docker, seccomp off") == made.level(off)
    assert baseline_level([on, off], made, "docker, platform.seccomp=false") == made.level(off)


def test_a_level_that_has_not_run_yet_is_labelled_like_the_others():
    made = cells([trained("runc", "lenet5"), trained("runc", "resnet18")], "platform")
    around = made.surroundings(trained("runc", "resnet18"))

    assert made.joined("bare", around) == "ResNet-18 training on bare metal"


def test_who_works_beside_the_measured_one_is_a_label_and_no_other_work():
    beside = "beside finetune in bare (cpu_shares 2)"
    assert labels([record("bare", settings={"tenants": each}) for each in (1, beside)], by="tenants") == [
        "alone", "beside fine-tuning on bare metal (cpu shares 2)",
    ]  # fmt: skip
    assert unlike_work([{"tenants": 1}, {"tenants": beside}]) == {}
    assert unlike_work([{"tenants": 1}, {"tenants": 4}]) == {"tenants": ["1", "4"]}
    assert setting_words("workload.threads", "quota") == "as many threads as the quota"
