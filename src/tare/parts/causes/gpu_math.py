"""Other ways of computing on the GPU, and the CPU's part of it."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

_KEYS = {
    "torch.gpu.tf32": "TF32",
    "torch.gpu.cudnn_benchmark": "cudnn.benchmark",
    "torch.gpu.cudnn": "cuDNN",
    "torch.gpu.name": "the GPU",
    "torch.cuda": "CUDA",
}


class GpuMath(Cause):
    """How the GPU computes: TF32, cudnn.benchmark, versions of CUDA and cuDNN, or another GPU."""

    title: ClassVar[str] = "how the GPU computes"
    phases: ClassVar[frozenset[str]] = frozenset({"gpu"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        if not any(key.startswith("torch.gpu") for key in slow.facts):
            return RuledOut("no GPU was used.")
        pairs = {name: (slow.facts.get(key), quick.facts.get(key)) for key, name in _KEYS.items()}
        differing = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        if not differing:
            return RuledOut("TF32, cudnn.benchmark, CUDA, cuDNN and GPU are the same on both sides.")
        told = "; ".join(f"{name} is {ours}, {theirs} on the other side" for name, (ours, theirs) in differing.items())
        return Suspicion(
            weight=0.6,
            evidence=f"{told}.",
            cure="the same versions in the image, and the same torch.backends settings in the script",
            untried="versions of CUDA cannot be exchanged alone; see the cause `software`.",
        )
