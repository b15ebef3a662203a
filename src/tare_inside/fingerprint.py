"""What software runs here, as JSON: `python fingerprint.py`. Two sides of a comparison should say the same.

Whatever cannot be found is left out. Without torch, numpy or a cgroup the rest is still said.
"""

import hashlib
import importlib.util
import json
import os
import platform
import re
import resource
import sys

_ENV = re.compile(
    r"^(OMP_|GOMP_|KMP_|MKL_|OPENBLAS_|BLIS_|MALLOC_|MIMALLOC_|CUDA_|PYTORCH_|TORCH|ATEN_|ONEDNN_|DNNL_|NCCL_|GLOO_"
    r"|NUMEXPR_|NPY_|LD_|TRITON_)"
)
_ENV_NAMES = (
    "GLIBC_TUNABLES", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONDEVMODE",
    "PYTHONTRACEMALLOC", "PYTHONMALLOC", "PYTHONPROFILEIMPORTTIME", "PYTHONOPTIMIZE", "PYTHONASYNCIODEBUG",
    "NVIDIA_TF32_OVERRIDE", "HF_HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR", "NUMBA_CACHE_DIR", "TMPDIR",
)  # fmt: skip
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED|COOKIE|AUTH|SESSION", re.IGNORECASE)
_STATUS = ("Seccomp", "Speculation_Store_Bypass", "NoNewPrivs", "CapEff", "Cpus_allowed_list", "Mems_allowed_list")
# The libraries that do the work: torch's own, BLAS, OpenMP, C and its allocator, CUDA.
_LIBRARY = re.compile(
    r"lib((torch|c10|shm|caffe|gomp|iomp|omp|blas|openblas|lapack|mkl|dnnl|arm_compute|blis|cudart|cublas|cudnn|nccl"
    r"|tcmalloc|jemalloc|mimalloc)[-_.0-9a-z]*|(c|m|pthread|stdc\+\+)(-[0-9.]+)?)\.so",
    re.IGNORECASE,
)
_VERSION = re.compile(r"^(?:__)?version(?:__)?\b[^=]*= *['\"]([^'\"]+)", re.MULTILINE)
_PIECE_BYTES = 1 << 20


def gather():
    """Everything below in one object."""
    reported = {
        "python": python_facts(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "libc": libc(),
        "env": environment(os.environ),
        "process": process_status(),
        "limits": {
            "nofile": list(resource.getrlimit(resource.RLIMIT_NOFILE)),
            "memlock": list(resource.getrlimit(resource.RLIMIT_MEMLOCK)),
        },
        "shm": shared_memory(),
        "cgroup": cgroup_limits(),
        "file_system": file_systems(),
        "torch": torch_facts(),
        "numpy": numpy_facts(),
        "libraries": libraries(),  # last: by now they are all loaded
    }
    return {name: value for name, value in reported.items() if value}


def python_facts():
    """Version and build of the interpreter: a debug build or one without optimisations is slower by a lot."""
    reported = {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
    }
    try:
        import sysconfig

        built = sysconfig.get_config_vars()
    except Exception:  # an interpreter without its build's files
        return reported
    flags = "%s %s" % (built.get("CONFIG_ARGS") or "", built.get("PY_CORE_CFLAGS") or "")
    reported["debug"] = bool(built.get("Py_DEBUG"))
    reported["shared"] = bool(built.get("Py_ENABLE_SHARED"))
    reported["optimized"] = "--enable-optimizations" in flags or "-fprofile-use" in flags
    reported["lto"] = "--with-lto" in flags or "-flto" in flags
    return reported


def shared_memory():
    """The size of /dev/shm, through which workers pass their batches."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return None
    return {"bytes": found.f_frsize * found.f_blocks}


def libc():
    """Name and version of the C library: its own word where it has one, otherwise what the interpreter links to."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return " ".join(part for part in platform.libc_ver() if part)


def environment(environ):
    """The variables that change how fast things run; never one whose name speaks of a secret."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if (_ENV.match(name) or name in _ENV_NAMES) and not _SECRET.search(name)
    }


def process_status(text=None):
    """What the kernel holds against, or for, this process."""
    lines = (_read("/proc/self/status") if text is None else text).splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs if name in _STATUS}


def cgroup_limits():
    """CPU quota and memory limit as seen from inside, in cores and bytes; what is unlimited is left out.

    So is the period of the quota where it is 0.1 s, as nearly everywhere.
    """
    folders = _cgroup_folders()
    limits = dict(_cpu_quota(folders), memory_limit_bytes=_memory_limit(folders))
    return {name: value for name, value in limits.items() if value is not None}


def file_systems(mounts=None, folders=None):
    """The kind of file system under the folder for temporary files and the working folder: one may be memory."""
    folders = folders or {"tmp": os.environ.get("TMPDIR") or "/tmp", "work": os.getcwd()}
    text = _read("/proc/self/mountinfo") if mounts is None else mounts
    known = [line.split() for line in text.splitlines() if " - " in line]
    found = {}
    for name, folder in folders.items():
        path = os.path.realpath(folder) + "/"
        # The longest mount point that the path lies under; of several on one point the last covers the others.
        held = [words for words in known if path.startswith(words[4].rstrip("/") + "/")]
        if held and path != "//":
            deepest = max(enumerate(held), key=lambda each: (len(each[1][4]), each[0]))[1]
            found[name] = deepest[deepest.index("-") + 1]
    return found


def torch_facts():
    """Version, build, thread pools and code paths of the torch in this process; else the version that lies here.

    It is not imported for this: that takes seconds, and a job that did without it has nothing to say of it.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        version = installed_version("torch")
        return {"version": version} if version else None
    reported = {"version": str(torch.__version__)}
    for name, ask in _QUESTIONS.items():
        try:
            answer = ask(torch)
        except Exception:  # an older torch does not know everything
            continue
        if answer is not None:
            reported[name] = answer
    return reported


def numpy_facts():
    numpy = sys.modules.get("numpy")
    version = installed_version("numpy") if numpy is None else numpy.__version__
    return {"version": version} if version else None


def installed_version(package):
    """The version of a package that lies here, read from its own version file."""
    try:
        found = importlib.util.find_spec(package)
    except Exception:  # a finder of somebody else's may raise anything
        return None
    if found is None or not found.origin:
        return None
    match = _VERSION.search(_read(os.path.join(os.path.dirname(found.origin), "version.py")))
    return match.group(1) if match else None


def libraries():
    """Name and digest of the libraries in this process: the first and last MiB and the size, to stay quick."""
    paths = {line.split()[-1] for line in _read("/proc/self/maps").splitlines() if "/" in line}
    found = {}
    for path in sorted(paths):
        name = os.path.basename(path)
        if _LIBRARY.match(name):
            digest = _digest(path)
            if digest is not None:
                found[name] = digest
    return found


def _optimiser_path(torch):
    """Which way optimisers update parameters unless told: the default differs by version and device."""
    from torch.optim import optimizer

    device = "cuda" if torch.cuda.is_initialized() else "cpu"
    choose = optimizer._default_to_fused_or_foreach
    fused, foreach = choose([torch.nn.Parameter(torch.zeros(1, device=device))], False, False)
    return "fused" if fused else "foreach" if foreach else "for-loop"


def _build(torch):
    """How torch was built: compiler, flags, libraries."""
    return hashlib.sha256(torch.__config__.show().encode()).hexdigest()[:16]


def _blas(torch):
    found = re.search(r"\bBLAS_INFO=(\w+)", torch.__config__.show())
    return found.group(1) if found else None


def _parallel(torch):
    found = re.search(r"ATen parallel backend: (.+)", torch.__config__.parallel_info())
    return found.group(1).strip() if found else None


def _gpu(torch):
    """The GPU in use. One that this process has not touched is left alone: asking would start a CUDA context."""
    if not torch.cuda.is_initialized():
        return None
    return {"name": torch.cuda.get_device_name(), "cudnn": torch.backends.cudnn.version()}


_QUESTIONS = {
    "git": lambda torch: torch.version.git_version,
    "cuda": lambda torch: torch.version.cuda,
    "threads": lambda torch: torch.get_num_threads(),
    "interop_threads": lambda torch: torch.get_num_interop_threads(),
    "parallel": _parallel,
    "blas": _blas,
    "build": _build,
    "mkldnn": lambda torch: torch.backends.mkldnn.is_available(),
    "mkl": lambda torch: torch.backends.mkl.is_available(),
    "cpu_capability": lambda torch: torch.backends.cpu.get_cpu_capability(),
    "optimiser": _optimiser_path,
    "gpu": _gpu,
}


def _cgroup_folders():
    """Controller -> the folders that may hold its files: that of this process, and the root of a cgroup namespace."""
    folders = {}
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            root = "/sys/fs/cgroup" + ("/" + controllers if controllers else "")
            folders[controller] = [root + path.rstrip("/"), root]
    return folders


def _cpu_quota(folders):
    for folder in folders.get("", []):
        words = _read(folder + "/cpu.max").split()
        if len(words) == 2:
            return {} if words[0] == "max" else _in_periods(int(words[0]), int(words[1]))
    for folder in folders.get("cpu", []):
        quota, period = _read(folder + "/cpu.cfs_quota_us"), _read(folder + "/cpu.cfs_period_us")
        if quota and period:
            return _in_periods(int(quota), int(period)) if int(quota) > 0 else {}
    return {}


def _in_periods(quota_us, period_us):
    found = {"cpu_quota_cores": quota_us / period_us}
    return found if period_us == 100000 else dict(found, cpu_period_s=period_us / 1e6)


def _memory_limit(folders):
    for folder in folders.get("", []):
        text = _read(folder + "/memory.max").strip()
        if text:
            return None if text == "max" else int(text)
    for folder in folders.get("memory", []):
        text = _read(folder + "/memory.limit_in_bytes").strip()
        if text:
            return int(text) if int(text) < 1 << 62 else None  # v1 says "unlimited" with a huge number
    return None


def _digest(path):
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest = hashlib.sha256(str(size).encode())
            digest.update(file.read(_PIECE_BYTES))
            file.seek(max(0, size - _PIECE_BYTES))
            digest.update(file.read(_PIECE_BYTES))
    except OSError:
        return None
    return digest.hexdigest()[:32]


def _read(path):
    try:
        with open(path) as file:
            return file.read()
    except (OSError, ValueError):
        return ""


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]  # our data/ is not the user's
    print(json.dumps(gather(), sort_keys=True))


if __name__ == "__main__":
    main()
