"""The workloads of the papers by name: which part, with which fields. Knowing them needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tare.base.errors import StudyError, unknown_name
from tare.parts.protocols import Json
from tare_inside import named

Mode: TypeAlias = Literal["train", "infer"]

TRAINED = ("fetch", "copy", "compute")
TRAINED_APART = ("fetch", "copy", "forward", "backward", "optimiser")
IN_MEMORY = ("fetch", "copy", "inference")
END_TO_END = ("pre_process", "inference", "post_process")
GENERATED = ("first_token", "compute")


@dataclass(frozen=True)
class Preset:
    """A workload of the papers in their size; `quick` is what `tare weigh` changes so that a trial takes seconds."""

    name: str
    mode: Mode
    model: str
    data: str
    part: str
    phases: tuple[str, ...]
    fields: Mapping[str, Json]
    quick: Mapping[str, Json] = field(default_factory=dict)
    note: str = ""

    def workload(self, *, quick: bool = False) -> dict[str, Json]:
        """The workload as a study has it."""
        return {self.part: {**self.fields, **(self.quick if quick else {})}}

    def described(self) -> dict[str, Any]:
        """What `tare list workloads --json` says; `flops` is the papers' figure, `flops_counted` what we count."""
        network = named.find("models", self.model)
        return {
            "name": self.name,
            "mode": self.mode,
            "model": self.model,
            "data": self.data,
            "params": network.PARAMS,
            "flops": getattr(network, "PAPER_FLOPS", network.FLOPS),
            "flops_counted": network.FLOPS,
            "phases": list(self.phases),
            "workload": self.workload(),
            "quick": self.workload(quick=True),
            **({"note": self.note} if self.note else {}),
        }


def _training(name: str, model: str, data: str, note: str = "", **fields: Json) -> Preset:
    """As in the papers: batch 16, 4 workers, 2 mini-batches ahead, SGD with momentum; those are the part's defaults."""
    whole = {"model": model, "data": data, "epochs": 6, "steps_per_epoch": None, "phases": True}
    steps = _few(model, least=3, budget=6e9)
    quick = {"epochs": 2, "steps_per_epoch": steps, "items": 16 * steps, "workers": 1}
    return Preset(name, "train", model, data, "torch_train", TRAINED_APART, {**whole, **fields}, quick, note)


def _inference(name: str, model: str, requests: int) -> Preset:
    fields = {"model": model, "batch": 16, "requests": requests}
    quick = {"requests": _few(model, least=5, budget=2e10)}
    return Preset(name, "infer", model, "memory", "torch_infer", IN_MEMORY, fields, quick)


def _application(name: str, application: str, requests: int, quick_scale: float = 1.0) -> Preset:
    known = named.find("applications", application)
    fields = {"name": application, "requests": requests}
    quick = {"requests": 10, **({"scale": quick_scale} if quick_scale != 1 else {})}
    return Preset(name, "infer", known.MODEL, known.DATA, "application", END_TO_END, fields, quick)


def _fine_tuning(name: str, note: str, **fields: Json) -> Preset:
    whole = {"size": "small", **fields, "batch": 4, "length": 512, "accumulate": 2, "phases": True}
    quick = {"scale": 0.25, "batch": 1, "length": 64, "epochs": 2, "steps_per_epoch": 5}
    return Preset(name, "train", "gpt2", "memory", "finetune", TRAINED_APART, whole, quick, note)


def _few(model: str, least: int, budget: float) -> int:
    """So many steps that a small CPU is done with them in well under a minute; 60 of a network that costs nothing."""
    return max(least, min(60, int(budget / named.find("models", model).FLOPS)))


_AS_IN_TABLES = "the papers' tables count 1,000 classes, whatever the data have"
_UPSCALED = _AS_IN_TABLES + "; images are enlarged to the 224 pixels that the network was made for"
_256 = "256 pixels, as the paper has them"

PRESETS = (
    Preset(
        "lenet5", "train", "lenet5", "mnist", "torch_train", TRAINED,
        # A few seconds a trial on a small machine: epoch 0 apart, then as many steps as a 90th percentile takes. More
        # of them would not help: trials differ by their process, and those of 60 steps scatter as those of 120.
        {"model": "lenet5", "batch": 16, "epochs": 6, "steps_per_epoch": 20, "workers": 0, "threads": 1},
        note="the one that `tare weigh` takes by itself: a few seconds a trial on any machine",
    ),
    _training("lenet5-mnist", "lenet5", "mnist"),
    _training("mobilenet-gld23k", "mobilenet_v3_large", "gld23k", _AS_IN_TABLES, classes=1000),
    _training("resnet18-cifar10", "resnet18", "cifar10", _UPSCALED, classes=1000),
    _training("resnet18-imagenet", "resnet18", "imagenet", epochs=3),
    _training("resnet50-imagenet", "resnet50", "imagenet", epochs=3),
    _training("vgg11-cifar10", "vgg11", "cifar10", _UPSCALED, classes=1000),
    _training("squeezenet-imagenet", "squeezenet", "imagenet", _256, pixels=256, epochs=10),
    _training("alexnet-imagenet", "alexnet", "imagenet", _256, pixels=256, epochs=10),
    _training("lstm-wikipedia", "lstm", "wikipedia", epochs=10),
    _training("mobilebert-wikipedia", "mobilebert", "wikipedia", epochs=10),
    _inference("lenet5-infer", "lenet5", 131250),
    _inference("mobilenet-infer", "mobilenet_v3_large", 24600),
    _inference("resnet50-infer", "resnet50", 6250),
    _application("image-classification", "image", 1000),
    _application("speech-recognition", "speech", 1200),
    _application("question-answering", "question", 10570, quick_scale=0.25),
    _application("recommendation", "recommendation", 1000, quick_scale=0.02),
    Preset(
        "gpt2-generate", "infer", "gpt2", "memory", "generate", GENERATED, {"size": "small", "requests": 20},
        {"scale": 0.25, "requests": 6, "prompt": 32, "output": 33},
        note="a step is a token; the time to the first one is a figure of its own",
    ),
    _fine_tuning("gpt2-finetune", "all weights learn: full fine-tuning with AdamW"),
    _fine_tuning("gpt2-lora", "only adapters learn (LoRA, rank 8)", method="lora"),
)  # fmt: skip


def preset(name: str) -> Preset:
    """The one of that name."""
    for each in PRESETS:
        if each.name == name:
            return each
    raise StudyError(unknown_name("built-in workload", name, [each.name for each in PRESETS]))
