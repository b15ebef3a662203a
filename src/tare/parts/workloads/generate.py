"""Text generation with a decoder: the built-in program `tare_inside/programs/generate.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from tare.base.host import Host, Job
from tare.base.rulings import Ruling
from tare.drivers.torch_programs import START_S, DecoderWorkload
from tare_inside.models import Gpt2

REHEARSED_REQUESTS, REHEARSED_OUTPUT = 2, 8
_CALL_S = 2e-3  # whatever the size of the network


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

    def guessed_s(self, cores: int) -> float | None:
        token_s = self.token_s(cores) * self.batch
        request_s = self.output * (token_s + _CALL_S) + self.prompt * token_s
        return START_S + (self.requests + min(2, self.warm_up)) * request_s

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        requested = self.model_dump(mode="json", exclude={"malloc", "python"})
        return self.program(place, workdir, "generate", requested | {"seed": seed})
