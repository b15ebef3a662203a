"""Which of a user's variables a job may be given: an allowlist, for the engine and for the agent on a lean device."""

import re

BUILT_IN = frozenset({"PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"})
"""Those of a built-in workload: where programs and libraries are found."""

USERS_OWN = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR"
    r"|VIRTUAL_ENV|CONDA_PREFIX|CONDA_DEFAULT_ENV|PYTHONPATH|PYTHONHOME|PYTHONUNBUFFERED|PYTHONHASHSEED"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|GLIBC_TUNABLES"
    r"|(OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|NUMEXPR|MALLOC|MIMALLOC|ONEDNN|DNNL|ATEN)_\w+"
    r"|(CUDA|CUDNN|NVIDIA|NCCL|HIP|ROCM|ROCR|HSA)_\w+"
    r"|(TORCH|PYTORCH|TORCHINDUCTOR|TF|XLA|JAX|HF|TRANSFORMERS|ACCELERATE|XDG)_\w+"
)
"""Those of a user's own command: what it may depend on."""

SECRETS = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED|COOKIE|AUTH|SESSION", re.IGNORECASE)
"""A variable with such a name holds a secret, and is not passed on by itself."""


def may_pass(name: str) -> bool:
    """Whether some job may be given this variable."""
    return name in BUILT_IN or bool(USERS_OWN.fullmatch(name) and not SECRETS.search(name))
