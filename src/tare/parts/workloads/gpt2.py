"""A decoder that generates text or is fine-tuned: the built-in programs `generate.py` and `finetune.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from tare.base.host import Host, Job
from tare.base.rulings import Ruling, obstacle
from tare.drivers.torch_programs import PASSES, START_S, DecoderWorkload
from tare.parts.protocols import Machine
from tare_inside.workloads.models import Gpt2

REHEARSED_REQUESTS, REHEARSED_OUTPUT = 2, 8
_LAYER_S = 2.5e-4  # whatever the size of the network


class Generate(DecoderWorkload):
    """Generate text with GPT-2, token by token, and mark each: the first token of a request and every further one."""

    batch: PositiveInt = 1
    """Prompts in a request, whose tokens are computed together."""
    prompt: PositiveInt = 64
    """Tokens of a prompt."""
    output: int = Field(default=64, ge=2)
    """Tokens that are generated for each prompt."""
    requests: PositiveInt = 20
    """Requests, one after another, each a batch of prompts."""
    warm_up: NonNegativeInt = 5
    """At most so many requests are answered before anything is timed; fewer where two in a row take as long."""
    decode: Literal["greedy", "sample"] = "greedy"
    """`greedy`: the likeliest token; `sample`: one of the `top_k` likeliest, by the trial's seed."""
    top_k: PositiveInt = 50
    """Of how many tokens `sample` chooses."""
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """How even the choice of `sample` is."""
    backend: Literal["eager", "compile"] = "eager"
    """`compile`: torch.compile, which takes a minute before the first token."""
    precision: Literal["fp32", "bf16", "int8"] = "fp32"
    """`int8`: the weights of linear layers, quantised dynamically; on CPUs."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        for sentence in self.weights_complaints():
            raise ValueError(sentence)
        if self.weights is None and self.prompt + self.output > Gpt2.LONGEST:
            raise ValueError(f"GPT-2 has room for {Gpt2.LONGEST} tokens: `prompt` + `output` are too many")
        if self.precision == "int8" and self.device == "cuda":
            raise ValueError("`precision: int8` is for CPUs: PyTorch's dynamic quantisation does not run on a GPU")
        return self

    def obstacles(self, host: Host) -> list[Ruling]:
        return self.torch_obstacles(host) or self.program_obstacles(host, "generate", self.backend, self.precision)

    def title(self) -> str:
        return f"{self.network_title()} generation, batch {self.batch}, {self.prompt} + {self.output} tokens"

    def shortened(self) -> Self:
        few = {"requests": REHEARSED_REQUESTS, "output": REHEARSED_OUTPUT, "warm_up": 1}
        return self.model_copy(update={name: min(getattr(self, name), most) for name, most in few.items()})

    def units(self) -> int | None:
        return self.requests * (self.output - 1)

    def guessed_s(self, machine: Machine) -> float | None:
        token_s = self.token_s(machine) * self.batch
        request_s = self.output * (token_s + self.layers() * _LAYER_S) + self.prompt * token_s
        return START_S + (self.requests + min(2, self.warm_up)) * request_s

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        requested = self.model_dump(mode="json", exclude={"malloc", "python"})
        return self.program(place, workdir, "generate", requested | {"seed": seed})


REHEARSED_STEPS = 3
_STEP_S = 5e-3  # whatever the size of the network
_TOGETHER = {"cpu": 4, "cuda": 1}  # many tokens at once take a core so much less than one after another


class Finetune(DecoderWorkload):
    """Train GPT-2 further, all of it or adapters alone (LoRA), and mark each step."""

    method: Literal["full", "lora"] = "full"
    """`full`: all weights learn; `lora`: adapters alone, at the layers that make query, key and value."""
    rank: PositiveInt = 8
    """Of the adapters: how narrow they are."""
    alpha: float = Field(default=16.0, gt=0, allow_inf_nan=False)
    """Of the adapters: what they add counts alpha / rank."""
    batch: PositiveInt = 4
    """Texts in a mini-batch."""
    accumulate: PositiveInt = 1
    """Mini-batches whose gradients add up before the weights change: a step has batch x accumulate texts."""
    length: PositiveInt = 128
    """Tokens in a text."""
    checkpointing: bool = False
    """Keeps only the input of each layer, and computes the rest again in the backward pass: less memory, more time."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """`bf16`: mixed precision (autocast); the weights and the optimiser's state stay in fp32."""
    data_path: Path | None = None
    """A file of token numbers: text with white space between them, or 16 bits each (`*.bin`); random by default."""
    epochs: PositiveInt = 3
    """Passes over the data. The first is kept apart in every figure."""
    steps_per_epoch: PositiveInt = 20
    """Steps in an epoch."""
    lr: float = Field(default=1e-4, gt=0, allow_inf_nan=False)
    """Learning rate of AdamW."""
    timing: Literal["sync", "async"] = "sync"
    """On a GPU. `sync`: wait for it after each step; `async`: wait for nothing, read its events later."""
    phases: bool = False
    """Mark forward, backward and optimiser apart as well; with `accumulate` the first two add up over the step."""
    marks: bool = True
    """Without marks there is only `mean_step_s`: the other side of what marking costs."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for sentence in (*self.weights_complaints(), *self._complaints()):
            raise ValueError(sentence)
        return self

    def _complaints(self) -> Iterator[str]:
        if self.weights is None and self.length > Gpt2.LONGEST:
            yield f"GPT-2 has room for {Gpt2.LONGEST} tokens: `length` is too large"
        if self.data_path is not None and not self.data_path.is_absolute():
            yield f"`data_path` is an absolute path, not {str(self.data_path)!r}"
        if self.device == "cpu" and self.timing == "async":
            yield "`timing: async` is for a GPU: on a CPU a step is over when it returns. Set `device: cuda`"
        if self.phases and not self.marks:
            yield "`phases` are marks, and `marks` is false: set one of them"

    def obstacles(self, host: Host) -> list[Ruling]:
        if self.data_path is not None and not self.data_path.is_file():
            return [obstacle("needs.file", f"no file {self.data_path}.")]
        wanted = (self.precision, self.checkpointing)
        return self.torch_obstacles(host) or self.program_obstacles(host, "finetune", "eager", *wanted)

    def title(self) -> str:
        how = "fine-tuning" if self.method == "full" else f"fine-tuning (LoRA, rank {self.rank})"
        batch = f"batch {self.batch}" if self.accumulate == 1 else f"batch {self.accumulate} x {self.batch}"
        return f"{self.network_title()} {how}, {batch}, {self.length} tokens"

    def inputs(self) -> tuple[Path, ...]:
        return super().inputs() + (() if self.data_path is None else (self.data_path,))

    def shortened(self) -> Self:
        return self.model_copy(update={"epochs": 1, "steps_per_epoch": min(self.steps_per_epoch, REHEARSED_STEPS)})

    def units(self) -> int | None:
        return self.epochs * self.steps_per_epoch if self.marks else 0

    def guessed_s(self, machine: Machine) -> float | None:
        passes = PASSES + self.checkpointing - (self.method == "lora")  # adapters need no gradients of the weights
        tokens = self.batch * self.accumulate * self.length / _TOGETHER[self.device]
        return START_S + self.epochs * self.steps_per_epoch * (passes * tokens * self.token_s(machine) + _STEP_S)

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        requested = self.model_dump(mode="json", exclude={"malloc", "python", "marks"})
        return self.program(place, workdir, "finetune", requested | {"seed": seed, "marked": self.marks})
