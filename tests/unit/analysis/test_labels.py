"""Labels for people: only what differs, in the order platform, workload, other settings, and no two the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis_figures import record
from tare.analysis.cells import baseline_level, cells
from tare.analysis.judging.work import unlike_work
from tare.analysis.labels import setting_words, shortened


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
    beside = "beside finetune in bare"
    assert labels([record("bare", settings={"tenants": each}) for each in (1, beside)], by="tenants") == [
        "alone", beside,
    ]  # fmt: skip
    assert unlike_work([{"tenants": 1}, {"tenants": beside}]) == {}
    assert unlike_work([{"tenants": 1}, {"tenants": 4}]) == {"tenants": ["1", "4"]}
    assert setting_words("workload.threads", "quota") == "as many threads as the quota"
