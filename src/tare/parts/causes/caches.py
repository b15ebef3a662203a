"""Caches that go with the container."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.causes.debug_variables import suspected_variables
from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

_FOLDERS = {
    "TORCHINDUCTOR_CACHE_DIR": ("kernels of torch.compile are kept elsewhere", 0.6),
    "TRITON_CACHE_DIR": ("Triton's kernels are kept elsewhere", 0.6),
    "CUDA_CACHE_PATH": ("CUDA's compiled kernels are kept elsewhere", 0.6),
    "XDG_CACHE_HOME": ("caches are kept elsewhere", 0.5),
    "HF_HOME": ("Hugging Face's files are kept elsewhere", 0.5),
    "TORCH_HOME": ("torch's downloads are kept elsewhere", 0.4),
    "MPLCONFIGDIR": ("Matplotlib builds its font list anew", 0.3),
    "NUMBA_CACHE_DIR": ("Numba's compiled code is kept elsewhere", 0.4),
}


class Caches(Cause):
    """Compiled kernels and downloads that die with the container are made anew by the next one."""

    title: ClassVar[str] = "caches that go with the container"
    phases: ClassVar[frozenset[str]] = frozenset({"start"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        found = suspected_variables(slow, quick, _FOLDERS)
        return found or RuledOut("both sides keep their caches in the same folders.")
