"""PYTHONDONTWRITEBYTECODE=1, so that every import is compiled again."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.causes.debug_variables import suspected_variables
from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

_COSTLY = {
    "PYTHONDONTWRITEBYTECODE": ("imports without a cached file are compiled in every process", 0.5),
    "PYTHONPYCACHEPREFIX": ("compiled files are looked for in another folder", 0.4),
}


class Bytecode(Cause):
    """Python's compiled files: an image without them compiles every import again, in every container."""

    title: ClassVar[str] = "Python's compiled files"
    phases: ClassVar[frozenset[str]] = frozenset({"start"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        return suspected_variables(slow, quick, _COSTLY) or RuledOut("both sides may keep compiled files.")
