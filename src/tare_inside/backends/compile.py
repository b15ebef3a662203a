"""torch.compile with its default back end; what it builds is kept in the trial's own folder, so that each compiles."""

import os
import shutil

TITLE = "torch.compile"

_COMPILERS = ("c++", "g++", "clang++")  # as torch looks for them, unless CXX names one


def obstacle(device):
    """Why torch.compile cannot work here, as a sentence; None if it can."""
    import torch

    if not hasattr(torch, "compile"):
        return "PyTorch {} has no torch.compile (2.0 and later have it); set `backend: eager`.".format(
            torch.__version__
        )
    if device == "cuda":
        return _without_triton()
    named = os.environ.get("CXX")
    if not any(shutil.which(name) for name in ([named] if named else _COMPILERS)):
        return "torch.compile needs a C++ compiler and there is none on PATH: install g++, or set `backend: eager`."
    return None


def _without_triton():
    import importlib.util

    if importlib.util.find_spec("triton") is None:
        return "torch.compile needs Triton for the GPU: `pip install triton`, or set `backend: eager`."
    return None


def opened(network, example, options):
    """The network, compiled for tensors like the example by a first call."""
    problem = obstacle(options["device"])
    if problem is not None:
        raise ValueError(problem)
    # Not the user's cache: what one trial left there would spare the next one the work.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(options["folder"], "inductor")
    import torch

    compiled = torch.compile(network.to(options["device"]), dynamic=bool(options.get("any_batch")))
    try:
        with torch.inference_mode():
            compiled(*[tensor.to(options["device"]) for tensor in example])
    except Exception as problem:  # torch wraps what its compiler says in classes of its own
        raise ValueError("torch.compile could not build the network: {}".format(_last_line(problem)))
    return compiled, options["device"]


def _last_line(problem):
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(problem).__name__
