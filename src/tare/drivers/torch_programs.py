"""What every built-in PyTorch program shares: its fields, what keeps it from running here, and how its job is made.

What a built-in workload takes, before anyone has run it: for plans, within a factor of two or three.

The figures are of small machines: two Neoverse-N1 cores that others use too, and the GPU of a Jetson AGX Orin as S0
has it (ResNet-18, batch 16: 50 ms a step).
"""

from __future__ import annotations

import inspect
import json
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from tare.base.errors import StudyError, unknown_name
from tare.base.host import Completed, Host, Job, facts_of
from tare.base.rulings import Ruling, obstacle
from tare.base.units import PER_SECOND, parse_quantity
from tare.drivers.places import SOURCE, Malloc, built_in_env, launched
from tare.drivers.storage.data_sets import folder_obstacles, make_synthetic, synthetic_folder
from tare.parts.protocols import Json, Machine, Workload
from tare_inside import named
from tare_inside.workloads.models import Gpt2

_LOOK_FOR_TORCH = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('torch') else 3)"
_LOOK_FOR_OTHERS = "import importlib.util as u, sys; print(*[name for name in sys.argv[1:] if not u.find_spec(name)])"
_LOOK_FOR_CUDA = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 3)"
_ABSENT = 3  # the exit code by which the two for torch and CUDA say no
_PACKAGES = {"PIL": "pillow"}  # what to install, where it is not called as it is imported


START_S = 4.0
"""Start Python, import torch, build the network."""

_MOST_CORES = 16  # more hardly help one mini-batch
_MACS_A_CORE = 4e9  # each second
_MACS_A_GPU = 2e12
_MACS_A_BIG_GPU = 2e13
_FORWARD_S = {"cpu": 1e-3, "cuda": 3e-3}  # a pass through a network, whatever the size of its work
_SMALL_NETWORK = 1e7  # multiplications; it has few layers
_LEAST_AREA = 0.05  # of an image that a network was made for: a smaller one is hardly less work


class TorchWorkload(Workload):
    """A program of ours in `tare_inside` that needs PyTorch."""

    meets = "ready"
    reports = frozenset({"outcome", "metrics", "software", "settling", "gpu_window"})

    threads: PositiveInt | Literal["quota"] | None = None
    """Threads of torch and OpenMP; their own choice (the machine's cores) by default; `quota`: as many as cores that
    the platform may use."""
    malloc: Malloc = "fixed"
    """`fixed`: the allocator keeps freed memory, which else flips between identical runs; `default`: it chooses."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where to compute."""
    python: str | None = None
    """The interpreter that has torch, if it is not the platform's own."""

    def macs_per_s(self, machine: Machine) -> float:
        """Multiplications with their additions, each second."""
        if self.device == "cuda":
            return _MACS_A_BIG_GPU if machine.big_gpu else _MACS_A_GPU
        return _MACS_A_CORE * min(machine.cores, self.most_cores(), _MOST_CORES)

    def most_cores(self) -> float:
        return self.threads if isinstance(self.threads, int) else math.inf

    def forward_s(self, model: str, batch: int, pixels: int | None, scale: float, machine: Machine) -> float:
        """One mini-batch: the work grows with the area of an image, and with the square of the network's width."""
        network = named.find("models", model)
        area = 1.0 if pixels is None else max((pixels / network.INPUT[-1]) ** 2, _LEAST_AREA)
        call_s = _FORWARD_S[self.device] / (5 if network.FLOPS < _SMALL_NETWORK else 1)
        return call_s + float(network.FLOPS) * area * scale**2 * batch / self.macs_per_s(machine)

    def torch_obstacles(self, host: Host) -> list[Ruling]:
        """Why the interpreter cannot run it: no PyTorch there, or one that sees no GPU."""
        python = self.python or host.python
        found = _without_torch(python, host.run([python, "-c", _LOOK_FOR_TORCH]), self.part_name())
        if not found and self.device == "cuda":
            found = _without_cuda(python, host.run([python, "-c", _LOOK_FOR_CUDA], limit_s=120))
        return found

    def module_obstacles(self, host: Host, modules: Sequence[str]) -> list[Ruling]:
        """Which modules beside torch the interpreter lacks: `PIL`, where pictures are decoded."""
        if not modules:
            return []
        python = self.python or host.python
        requested = host.run([python, "-c", _LOOK_FOR_OTHERS, *modules])
        missing = [_PACKAGES.get(name, name) for name in requested.out.split()] if requested.code == 0 else []
        return [
            obstacle(
                "needs.module",
                f"{python} has no {name}, which {self.part_name()} needs here: "
                f"`{python} -m pip install {name}` puts it there.",
            )
            for name in missing
        ]

    def program(self, place: Host, workdir: Path, module: str, requested: Mapping[str, Json]) -> Job:
        """The job that runs `tare_inside.<module>` with `asked` as its order, and where to leave what it finds."""
        files = {name: str(workdir / f"{name}.json") for name in ("outcome", "fingerprint")}
        threads = _cores_of(place) if self.threads == "quota" else self.threads
        order = {**requested, **files, "threads": threads, "marks": str(workdir / "marks.bin")}
        env = built_in_env(workdir, self.malloc)
        if threads is not None:
            env["OMP_NUM_THREADS"] = str(threads)  # some of torch's libraries do not ask torch
        argv = (
            self.python or place.python,
            "-m",
            f"tare_inside.workloads.programs.{module}",
            json.dumps(order, sort_keys=True),
        )
        return Job(launched(place.python, workdir, argv), env, str(workdir))


def _cores_of(place: Host) -> int | None:
    """How many cores the place may use, in whole cores; None where that is not known."""
    usable = facts_of(place).get("usable_cores")
    return None if usable is None else max(1, math.ceil(usable))


def _without_torch(python: str, requested: Completed, part: str) -> list[Ruling]:
    if requested.code == 0:
        return []
    if requested.code == _ABSENT:
        sentence = (
            f"{python} has no PyTorch: `{python} -m pip install torch` puts it there, "
            "or name an interpreter that has it: `--python PATH`, `--set workload.python=PATH`, or `python` of "
            f"{part} in the study."
        )
        return [obstacle("needs.module", sentence)]
    reported = (requested.err or requested.out).strip().splitlines()[-1:]
    sentence = f"{python} could not be asked whether it has PyTorch{': ' + reported[0] if reported else ''}."
    return [obstacle("host.not-asked", sentence)]


def _without_cuda(python: str, requested: Completed) -> list[Ruling]:
    if requested.code == 0:
        return []
    sentence = (
        f"the PyTorch of {python} sees no GPU: check the driver with `nvidia-smi` and that torch was built for CUDA, "
        "or set `device: cpu`."
    )
    return [obstacle("needs.gpu", sentence)]


_ASK_BACKEND = (
    "import sys; sys.path.insert(0, sys.argv[1]); from tare_inside import named; "
    "print(named.find('backends', sys.argv[2]).obstacle(sys.argv[3]) or '')"
)


def _rate(value: Any) -> Any:
    """`50/s` as 50.0; a plain number comes from code and records, and is a rate already."""
    return value if isinstance(value, float) else parse_quantity(value, PER_SECOND, "rate")


Rate = Annotated[float, BeforeValidator(_rate), Field(gt=0)]
"""How many a second."""


class ServingWorkload(TorchWorkload):
    """Answer requests, each of them a batch of items."""

    batch: PositiveInt = 16
    """Items in a request, which are computed together."""
    concurrency: PositiveInt = 1
    """Requests in flight: each has a thread, and on a GPU a stream, of its own."""
    warm_up: NonNegativeInt = 5
    """Requests that are answered before anything is timed."""
    backend: str = "eager"
    """What runs the network: a class in tare_inside/workloads/backends.py (eager, compile, onnx)."""
    scale: float = Field(default=1.0, gt=0, le=1)
    """Shrinks the network, where it can be shrunk, for a small machine."""
    pixels: PositiveInt | None = None
    """Side of the images that the network gets; what it was made for by default."""

    @field_validator("backend")
    @classmethod
    def _backend_is_there(cls, name: str) -> str:
        return named_or_hint("backends", "backend", name)

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        for sentence in self._complaints():
            raise ValueError(sentence)
        return self

    def _complaints(self) -> Iterator[str]:
        """Why these fields do not go together."""
        model = named.find("models", self._network())
        if self.scale != 1 and "scale" not in inspect.signature(model.build).parameters:
            yield f"{self._network()} comes in one size only: leave `scale` out"
        if self.pixels is not None and model.KIND != "image":
            yield f"`pixels` is for images and {self._network()} takes {model.KIND}: leave it out"

    @abstractmethod
    def _network(self) -> str:
        """The name of the network that computes."""

    def backend_obstacles(self, host: Host) -> list[Ruling]:
        """Why the interpreter cannot use the back end, in the back end's own words."""
        if self.backend == "eager":
            return []
        python = self.python or host.python
        requested = host.run([python, "-c", _ASK_BACKEND, str(SOURCE.parent), self.backend, self.device], limit_s=120)
        if requested.code == 0:
            return [obstacle("needs.backend", sentence)] if (sentence := requested.out.strip()) else []
        reported = (requested.err or requested.out).strip().splitlines()[-1:]
        return [
            obstacle(
                "host.not-asked",
                f"{python} could not be asked whether `backend: {self.backend}` works: {' '.join(reported)}",
            )
        ]


_ASK_PROGRAM = (
    "import json, sys; sys.path.insert(0, sys.argv[1]); from tare_inside import named; "
    "from tare_inside.workloads.programs import {program}; "
    "backend, *wanted = json.loads(sys.argv[2]); device = wanted[0]; "
    "print({program}.obstacle(*wanted) or named.find('backends', backend).obstacle(device) or '')"
)


class DecoderWorkload(TorchWorkload):
    """What is done with GPT-2: its size, its weights, and what they need of the device."""

    size: Literal["tiny", "small", "medium"] = "small"
    """The network: `small` has 124 M parameters, `medium` 355 M; `tiny` is for tests."""
    weights: Path | None = None
    """A local folder with GPT-2 weights of any size, read by transformers; random ones from the seed by default."""
    scale: float = Field(default=1.0, gt=0, le=1)
    """The share of the network's depth and of its heads, for a small machine."""

    def weights_complaints(self) -> Iterator[str]:
        """Why these weights cannot be meant."""
        if self.weights is not None and not self.weights.is_absolute():
            yield f"`weights` is an absolute path, not {str(self.weights)!r}"
        if self.weights is not None and self.scale != 1:
            yield "`weights` have a size of their own: leave `scale` out"

    def network_title(self) -> str:
        if self.scale != 1:  # no longer as large as the title has it
            return f"GPT-2 {self.size} scaled by {self.scale:g}"
        return Gpt2.TITLES[self.size] if self.weights is None else f"GPT-2 of {self.weights.name}"

    def inputs(self) -> tuple[Path, ...]:
        return () if self.weights is None else (self.weights,)

    def program_obstacles(self, host: Host, program: str, backend: str, *wanted: Json) -> list[Ruling]:
        """What the weights, the precision and the like need, in the program's own words."""
        if self.weights is not None and not (self.weights / "config.json").is_file():
            return [obstacle("needs.file", f"no config.json in {self.weights}: `weights` is a folder of transformers.")]
        if self.weights is None and all(each in ("eager", "fp32", False) for each in (backend, *wanted)):
            return []  # what every PyTorch can do
        python = self.python or host.python
        asked = json.dumps([backend, self.device, wanted[0], self.weights and str(self.weights), *wanted[1:]])
        script = _ASK_PROGRAM.format(program=program)
        requested = host.run([python, "-c", script, str(SOURCE.parent), asked], limit_s=120)
        if requested.code == 0:
            return [obstacle("needs.backend", sentence)] if (sentence := requested.out.strip()) else []
        reported = " ".join((requested.err or requested.out).strip().splitlines()[-1:])
        return [obstacle("host.not-asked", f"{python} could not be asked about `{wanted[0]}`: {reported}")]

    def token_s(self, machine: Machine) -> float:
        """One token through the network, forward, roughly."""
        _, heads, vocabulary = Gpt2.SIZES[self.size]
        width = max(1, round(heads * self.scale)) * Gpt2.HEAD_WIDTH
        return (12 * self.layers() * width**2 + vocabulary * width) / self.macs_per_s(machine)

    def layers(self) -> int:
        return max(1, round(Gpt2.SIZES[self.size][0] * self.scale))


class ApplicationData:
    """The data of an application: a folder of the user's own, or a synthetic one of as many items as are asked for."""

    def __init__(self, application: str, data_path: Path | None, items: int) -> None:
        module = named.find("applications", application)
        self.name = str(module.DATA)
        self._own, self._lines = data_path, items * int(getattr(module, "LINES_AN_ITEM", 1))
        self._synthetic = data_path is None

    @property
    def folder(self) -> Path:
        return self._own or synthetic_folder(self.name, self._lines)

    @property
    def needs(self) -> tuple[str, ...]:
        """The modules beside torch that reading them takes."""
        return tuple(getattr(named.find("data", self.name), "NEEDS", ()))

    def make(self, host: Host) -> None:
        if self._synthetic:
            make_synthetic(host, self.name, self._lines)

    def obstacles(self) -> list[Ruling]:
        """Why the user's own folder cannot be used."""
        if self._own is None:
            return []
        return folder_obstacles(self.name, self._own, self._lines)


def data_complaints(data_path: Path | None, items: int | None, batch: int) -> Iterator[str]:
    """Why these fields about an application's data do not go together."""
    if data_path is not None and items is not None:
        yield "`items` is the size of synthetic data; with `data_path` the files say it"
    if data_path is not None and not data_path.is_absolute():
        yield f"`data_path` is an absolute path, not {str(data_path)!r}"
    if items is not None and items < batch:
        yield f"a batch of {batch} needs {batch} items and `items` is {items}"


def named_or_hint(kind: str, field: str, name: str) -> str:
    """The name, if there is such a file in tare_inside; else what there is, and what was probably meant."""
    here = named.names(kind)
    if name in here:
        return name
    raise ValueError(unknown_name(field, name, here))


PASSES = 3  # forward, and twice as much backward
_LARGE_BYTES = 20_000  # of a file
_LARGE_ITEM_S = 5e-3  # read a picture, decode it, resize it
_SMALL_ITEM_S = 1e-4
_BESIDE = 3  # at most so many loader workers help


def load_s(data: str, batch: int) -> float:
    """A mini-batch from its files."""
    kept = named.find("data", data)
    return (_LARGE_ITEM_S if kept.BYTES / kept.ITEMS > _LARGE_BYTES else _SMALL_ITEM_S) * batch


def training_s(forward_s: float, loading_s: float, steps: int, workers: int) -> float:
    """`steps` mini-batches, their loading beside them as far as there are workers."""
    compute_s = PASSES * forward_s
    return START_S + steps * (max(compute_s, loading_s / min(workers, _BESIDE)) if workers else compute_s + loading_s)


def inference_s(request_s: float, requests: int, rate: float | None) -> float:
    """`requests` requests, not more often than they come."""
    return START_S + requests * max(request_s, 1 / rate if rate else 0.0)


# The workloads of the papers by name: which part, with which fields. Knowing them needs no torch.


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
        # Six pairs that start at the same time, and their rehearsals, are to take a minute on two quiet cores. Log
        # ratios of seven pairs there scattered by 1.2 %, and by 0.9 % with 400 steps.
        {"model": "lenet5", "batch": 16, "epochs": 3, "steps_per_epoch": 80, "workers": 0, "threads": 1},
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
