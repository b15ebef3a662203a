"""`tare list workloads` and the presets behind it: the papers' pairs, which a study and `tare weigh` can run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from tare.api.studies import built_in_workload
from tare.base.errors import StudyError
from tare.cli import tare
from tare.drivers.torch_programs import PRESETS, Preset
from tare.parts.find import find
from tare.studies.load import load

every_preset = pytest.mark.parametrize("preset", PRESETS, ids=[preset.name for preset in PRESETS])


def said(*words: str) -> str:
    result = CliRunner().invoke(tare, ["list", "workloads", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture(scope="module")
def listed() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(said("--json"))["workloads"]
    return found


def test_every_pair_of_the_papers_is_listed(listed: list[dict[str, Any]]) -> None:
    pairs = {(each["mode"], each["model"], each["data"]) for each in listed}
    assert pairs == {
        ("train", "lenet5", "mnist"),
        ("train", "mobilenet_v3_large", "gld23k"),
        ("train", "resnet18", "cifar10"),
        ("train", "resnet18", "imagenet"),
        ("train", "resnet50", "imagenet"),
        ("train", "vgg11", "cifar10"),
        ("train", "squeezenet", "imagenet"),
        ("train", "alexnet", "imagenet"),
        ("train", "lstm", "wikipedia"),
        ("train", "mobilebert", "wikipedia"),
        ("infer", "lenet5", "memory"),
        ("infer", "mobilenet_v3_large", "memory"),
        ("infer", "resnet50", "memory"),
        ("infer", "resnet50", "imagenet"),
        ("infer", "rnnt", "speech"),
        ("infer", "bert_large", "questions"),
        ("infer", "dlrm", "criteo"),
        ("infer", "gpt2", "memory"),  # of no paper, as the next
        ("train", "gpt2", "memory"),
    }
    names = [each["name"] for each in listed]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("model", "params", "flops"),
    [
        ("lenet5", 60e3, 4.4e6),
        ("mobilenet_v3_large", 5.48e6, 225.4e6),
        ("resnet18", 11.68e6, 1.82e9),
        ("vgg11", 132.86e6, 7.63e9),
    ],
)
def test_sizes_in_the_list_are_the_papers(
    listed: list[dict[str, Any]], model: str, params: float, flops: float
) -> None:
    rows = [each for each in listed if each["model"] == model]
    assert rows
    for row in rows:
        assert row["params"] == pytest.approx(params, rel=0.03)
        assert row["flops"] == pytest.approx(flops, rel=0.01)


def test_a_figure_of_the_papers_that_is_not_what_we_count_is_owned_up_to(listed: list[dict[str, Any]]) -> None:
    apart = {each["model"] for each in listed if each["flops"] != each["flops_counted"]}
    assert apart == {"lenet5"}
    assert "The papers say 4.4 M for LeNet-5; it is 423 k" in said()


def test_what_is_timed_is_said_for_each(listed: list[dict[str, Any]]) -> None:
    phases = {each["name"]: each["phases"] for each in listed}
    assert phases["resnet18-cifar10"] == ["fetch", "copy", "forward", "backward", "optimiser"]
    assert phases["lenet5-infer"] == ["fetch", "copy", "inference"]
    assert phases["speech-recognition"] == ["pre_process", "inference", "post_process"]


@every_preset
def test_forward_and_backward_are_said_to_be_timed_only_where_they_are(preset: Preset) -> None:
    assert ("forward" in preset.phases) == bool(preset.fields.get("phases"))


@every_preset
@pytest.mark.parametrize("quick", [False, True], ids=["whole", "quick"])
def test_a_preset_is_a_workload_that_its_part_accepts(preset: Preset, quick: bool) -> None:
    ((part, fields),) = preset.workload(quick=quick).items()
    made: Any = find("workloads", part).model_validate(fields)
    assert made.model_dump(exclude_unset=True).keys() == fields.keys()


@every_preset
def test_the_lines_of_a_preset_make_a_study(preset: Preset, tmp_path: Path) -> None:
    lines = said(preset.name)
    study = tmp_path / "study.yaml"
    study.write_text(f"study: pasted\nplatform: bare\n{lines}")
    assert YAML(typ="safe").load(lines) == {"workload": preset.workload()}
    assert [choice.name for choice in load(study).workloads] == [preset.part]
    assert max(map(len, lines.splitlines())) <= 80


def test_the_list_fits_a_narrow_terminal() -> None:
    assert max(map(len, said().splitlines())) <= 80


def test_the_default_weighing_is_what_it_was() -> None:
    fields = {"model": "lenet5", "batch": 16, "epochs": 3, "steps_per_epoch": 80, "workers": 0, "threads": 1}
    assert built_in_workload("lenet5") == {"torch_train": fields}
    assert built_in_workload("null") == {"null": {}}


def test_a_preset_is_weighed_with_the_same_network_for_fewer_steps() -> None:
    whole = next(preset for preset in PRESETS if preset.name == "resnet18-cifar10").workload()["torch_train"]
    quick = built_in_workload("resnet18-cifar10")["torch_train"]
    changed = {field for field in quick if quick[field] != whole.get(field)}
    assert changed == {"epochs", "steps_per_epoch", "items", "workers"}


def test_a_name_that_is_not_there_is_answered_with_the_nearest() -> None:
    with pytest.raises(StudyError, match=r"No built-in workload 'resnet18_cifar10'.*mean 'resnet18-cifar10'\?"):
        built_in_workload("resnet18_cifar10")
    result = CliRunner().invoke(tare, ["list", "workloads", "vgg11"])
    assert isinstance(result.exception, StudyError)
    assert "Did you mean 'vgg11-cifar10'?" in str(result.exception)
    with pytest.raises(StudyError, match=r"mean 'resnet18-cifar10' or 'resnet18-imagenet'\?"):
        built_in_workload("resnet18")


def test_the_list_needs_no_torch() -> None:
    asked = "import sys; sys.modules['torch'] = None; import tare.cli; tare.cli.main()"
    command = [sys.executable, "-c", asked, "list", "workloads", "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["workloads"]) == len(PRESETS)
