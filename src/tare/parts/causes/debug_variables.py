"""Variables that switch on checks, and are forgotten in an image."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

# What each does, and how sure it is to cost time where it is set.
COSTLY = {
    "CUDA_LAUNCH_BLOCKING": ("every CUDA kernel is waited for", 0.9),
    "PYTHONDEVMODE": ("Python's development mode checks every call", 0.7),
    "PYTHONTRACEMALLOC": ("every allocation of Python is traced", 0.9),
    "PYTHONMALLOC": ("another allocator for Python's objects", 0.7),
    "PYTHONPROFILEIMPORTTIME": ("imports are timed", 0.3),
    "PYTHONOPTIMIZE": ("bytecode of another optimisation level", 0.2),
    "PYTHONASYNCIODEBUG": ("asyncio checks itself", 0.4),
    "TORCH_DISTRIBUTED_DEBUG": ("collectives are checked", 0.5),
    "TORCH_LOGS": ("torch logs what it compiles", 0.4),
    "TORCH_SHOW_DISPATCH_TRACE": ("every operator is printed", 0.8),
    "TORCHDYNAMO_DISABLE": ("torch.compile is off", 0.7),
    "TORCH_COMPILE_DISABLE": ("torch.compile is off", 0.7),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("every tensor is allocated by the driver", 0.9),
    "PYTORCH_JIT": ("TorchScript is off", 0.4),
    "NCCL_DEBUG": ("NCCL logs", 0.2),
    "NVIDIA_TF32_OVERRIDE": ("TF32 is switched on or off for all libraries", 0.6),
    "CUDA_CACHE_DISABLE": ("kernels are compiled again in every process", 0.6),
    "OMP_DISPLAY_AFFINITY": ("OpenMP prints at every region", 0.3),
    "OMP_WAIT_POLICY": ("threads wait in another way", 0.5),
    "GOMP_SPINCOUNT": ("threads wait in another way", 0.5),
    "KMP_BLOCKTIME": ("threads wait in another way", 0.5),
    "OMP_PROC_BIND": ("threads are bound to cores", 0.4),
    "GOMP_CPU_AFFINITY": ("threads are bound to cores", 0.5),
    "KMP_AFFINITY": ("threads are bound to cores", 0.5),
    "LD_DEBUG": ("the loader prints what it does", 0.6),
    "LD_BIND_NOW": ("all symbols are resolved at the start", 0.2),
}


class DebugVariables(Cause):
    """Variables for debugging that stayed in the image: CUDA_LAUNCH_BLOCKING=1, PYTHONDEVMODE=1 and others."""

    title: ClassVar[str] = "a variable for debugging"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "gpu"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        return suspected_variables(slow, quick, COSTLY) or RuledOut("no variable that switches on checks differs.")


def suspected_variables(slow: Side, quick: Side, costly: dict[str, tuple[str, float]]) -> Suspicion | None:
    """Those of these variables that the sides have differently, set on the slow side as on the other one."""
    differing = [name for name in costly if slow.env(name) != quick.env(name)]
    if not differing:
        return None
    first = max(differing, key=lambda name: costly[name][1])
    set_here = "; ".join(
        f"{name}={slow.env(name)} ({costly[name][0]})" if slow.env(name) is not None else f"{name} is not set"
        for name in differing
    )
    restored = {name: quick.env(name) for name in differing}
    options = " ".join(f"-e {name}={value or ''}" for name, value in restored.items())
    return Suspicion(
        weight=costly[first][1],
        evidence=f"{set_here}.",
        without={"env": restored},
        added={"env": {name: slow.env(name) for name in differing}},
        cure=f"{options} (or remove it from the Dockerfile)",
    )
