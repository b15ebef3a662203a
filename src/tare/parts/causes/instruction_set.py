"""Another choice of the CPU's vector instructions."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.causes.variables import INSTRUCTIONS, suspected_variables
from tare.parts.protocols import Cause, RuledOut, Side, Suspicion


class InstructionSet(Cause):
    """Vector instructions: a variable, or the CPU model of a VM, keeps the libraries from the fast ones."""

    title: ClassVar[str] = "the vector instructions in use"

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        if (found := suspected_variables(slow, quick, INSTRUCTIONS)) is not None:
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
