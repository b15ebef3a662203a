"""Text generation with a decoder: the built-in program `tare_inside/programs/generate.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from tare.base.host import Host, Job
from tare.base.rulings import Ruling, obstacle
from tare.drivers.places import SOURCE
from tare.drivers.workloads.torch import START_S, TorchWorkload, macs_per_s
from tare_inside.models import gpt2

REHEARSED_REQUESTS, REHEARSED_OUTPUT = 2, 8
_CALL_S = 2e-3  # whatever the size of the network

_ASK = (
    "import json, sys; sys.path.insert(0, sys.argv[1]); from tare_inside import named; "
    "from tare_inside.programs import generate; device, precision, weights, backend = json.loads(sys.argv[2]); "
    "print(generate.obstacle(device, precision, weights) or named.find('backends', backend).obstacle(device) or '')"
)


class Generate(TorchWorkload):
    """Generate text with GPT-2, token by token, and mark each: the first token of a request and every further one."""

    size: Literal["tiny", "small", "medium"] = "small"
    """The network: `small` has 124 M parameters, `medium` 355 M; `tiny` is for tests."""
    weights: Path | None = None
    """A local folder with GPT-2 weights of any size, read by transformers; random ones from the seed by default."""
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
    scale: float = Field(default=1.0, gt=0, le=1)
    """The share of the network's depth and of its heads, for a small machine."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.weights is None and self.prompt + self.output > gpt2.LONGEST:
            raise ValueError(f"GPT-2 has room for {gpt2.LONGEST} tokens: `prompt` + `output` are too many")
        if self.precision == "int8" and self.device == "cuda":
            raise ValueError("`precision: int8` is for CPUs: PyTorch's dynamic quantisation does not run on a GPU")
        if self.weights is not None and not self.weights.is_absolute():
            raise ValueError(f"`weights` is an absolute path, not {str(self.weights)!r}")
        if self.weights is not None and self.scale != 1:
            raise ValueError("`weights` have a size of their own: leave `scale` out")
        return self

    def obstacles(self, host: Host) -> list[Ruling]:
        return self.torch_obstacles(host) or self._other_obstacles(host)

    def _other_obstacles(self, host: Host) -> list[Ruling]:
        """What the weights, the precision and the back end need, in the program's own words."""
        if self.weights is not None and not (self.weights / "config.json").is_file():
            return [obstacle("needs.file", f"no config.json in {self.weights}: `weights` is a folder of transformers.")]
        if (self.precision, self.backend, self.weights) == ("fp32", "eager", None):
            return []
        python = self.python or host.python
        wanted = json.dumps([self.device, self.precision, self.weights and str(self.weights), self.backend])
        requested = host.run([python, "-c", _ASK, str(SOURCE.parent), wanted], limit_s=120)
        if requested.code == 0:
            return [obstacle("needs.backend", sentence)] if (sentence := requested.out.strip()) else []
        reported = " ".join((requested.err or requested.out).strip().splitlines()[-1:])
        return [obstacle("host.not-asked", f"{python} could not be asked about `{self.precision}`: {reported}")]

    def title(self) -> str:
        network = gpt2.TITLES[self.size] if self.weights is None else f"GPT-2 of {self.weights.name}"
        return f"{network} generation, batch {self.batch}, {self.prompt} + {self.output} tokens"

    def inputs(self) -> tuple[Path, ...]:
        return () if self.weights is None else (self.weights,)

    def shortened(self) -> Self:
        few = {"requests": REHEARSED_REQUESTS, "output": REHEARSED_OUTPUT, "warm_up": 1}
        return self.model_copy(update={name: min(getattr(self, name), most) for name, most in few.items()})

    def units(self) -> int | None:
        return self.requests * (self.output - 1)

    def guessed_s(self, cores: int) -> float | None:
        layers, heads, vocabulary = gpt2.SIZES[self.size]
        layers, width = max(1, round(layers * self.scale)), max(1, round(heads * self.scale)) * gpt2.HEAD_WIDTH
        token_s = (12 * layers * width**2 + vocabulary * width) * self.batch / macs_per_s(self.device, cores)
        request_s = self.output * (token_s + _CALL_S) + self.prompt * token_s
        return START_S + (self.requests + min(2, self.warm_up)) * request_s

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        requested = self.model_dump(mode="json", exclude={"malloc", "python"})
        return self.program(place, workdir, "generate", requested | {"seed": seed})
