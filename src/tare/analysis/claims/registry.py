"""Every claim, found by the names of the papers' files."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import lru_cache

from tare.analysis import claims as folder
from tare.analysis.claims.model import Claim
from tare.analysis.compare import unknown_name
from tare.errors import StudyError

_PAPER = re.compile(r"s\d+")


def papers() -> list[str]:
    """The papers that have a file here, in order."""
    return sorted(module.name for module in pkgutil.iter_modules(folder.__path__) if _PAPER.fullmatch(module.name))


@lru_cache(maxsize=1)
def every_claim() -> tuple[Claim, ...]:
    """The claims of all papers, in the order of their files."""
    modules = [importlib.import_module(f"{folder.__name__}.{name}") for name in papers()]
    return tuple(claim for module in modules for claim in module.CLAIMS)


def claims_of(paper: str | None = None) -> tuple[Claim, ...]:
    """The claims of one paper, also those that it shares with another; of all where none is named."""
    if paper is None:
        return every_claim()
    if paper.lower() not in papers():
        raise StudyError(unknown_name("paper", paper, papers()))
    return tuple(claim for claim in every_claim() if paper.lower() in claim.papers)
