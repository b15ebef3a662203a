"""Another choice of the CPU's vector instructions."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.causes.debug_variables import suspected_variables
from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

_SETTINGS = {
    "ATEN_CPU_CAPABILITY": ("torch uses other vector instructions", 0.8),
    "DNNL_MAX_CPU_ISA": ("oneDNN uses other vector instructions", 0.8),
    "ONEDNN_MAX_CPU_ISA": ("oneDNN uses other vector instructions", 0.8),
    "DNNL_DEFAULT_FPMATH_MODE": ("oneDNN computes in another precision", 0.7),
    "ONEDNN_DEFAULT_FPMATH_MODE": ("oneDNN computes in another precision", 0.7),
    "OPENBLAS_CORETYPE": ("OpenBLAS takes another CPU for granted", 0.8),
    "MKL_ENABLE_INSTRUCTIONS": ("MKL uses other vector instructions", 0.8),
    "MKL_CBWR": ("MKL computes reproducibly, and slower", 0.6),
    "MKL_DEBUG_CPU_TYPE": ("MKL takes another CPU for granted", 0.6),
    "NPY_DISABLE_CPU_FEATURES": ("NumPy leaves out vector instructions", 0.6),
    "TORCH_MKLDNN_MATMUL_MIN_DIM": ("torch leaves small products to another library", 0.4),
}


class InstructionSet(Cause):
    """Vector instructions: a variable, or the CPU model of a VM, keeps the libraries from the fast ones."""

    title: ClassVar[str] = "the vector instructions in use"

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        if (found := suspected_variables(slow, quick, _SETTINGS)) is not None:
            return found
        ours, theirs = (slow.facts.get("torch.cpu_capability"), quick.facts.get("torch.cpu_capability"))
        if ours and theirs and ours != theirs:
            return Suspicion(
                weight=0.8,
                evidence=f"torch uses {ours}, {theirs} on the other side.",
                cure=f"-e ATEN_CPU_CAPABILITY={str(theirs).lower()}, or the same build of torch",
                without={"env": {"ATEN_CPU_CAPABILITY": str(theirs).lower()}},
            )
        return RuledOut("the libraries use the same instructions on both sides.")
