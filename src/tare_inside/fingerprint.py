"""What software runs here, as JSON: `python fingerprint.py`. Two sides of a comparison should say the same.

Whatever cannot be found is left out. Without torch, numpy or a cgroup the rest is still said.
"""

import glob
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import platform
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
INSIDE = os.path.dirname(HERE)
if __name__ == "__main__":  # our data/ is not the user's
    sys.path[:] = [INSIDE] + [folder for folder in sys.path if os.path.abspath(folder) != HERE]

from tare_inside import around, launch  # noqa: E402

# The libraries that do the work: torch's own, BLAS, OpenMP, C and its allocator, CUDA.
_LIBRARY = re.compile(
    r"lib((torch|c10|shm|caffe|gomp|iomp|omp|blas|openblas|lapack|mkl|dnnl|arm_compute|blis|cudart|cublas|cudnn|nccl"
    r"|tcmalloc|jemalloc|mimalloc)[-_.0-9a-z]*|(c|m|pthread|stdc\+\+)(-[0-9.]+)?)\.so",
    re.IGNORECASE,
)
_VERSION = re.compile(r"^(?:__)?version(?:__)?\b[^=]*= *['\"]([^'\"]+)", re.MULTILINE)
MODULES = "TARE_MODULES"  # where it is set, the modules on disk are listed, which takes a while
# Of what is gathered; the rest is of the process.
SOFTWARE = tuple(dict.fromkeys(("python", "libc", "torch", "numpy", "modules", "libraries") + around.KEYS))
_OTHER_CLOCKS = (
    "squashfs", "erofs", "fuse", "nfs", "cifs", "smb", "9p", "virtiofs", "ceph", "lustre", "gpfs", "beegfs", "afs",
)  # fmt: skip


def gather():
    """Everything below in one object."""
    reported = {
        "python": python_facts(),
        "libc": libc(),
        "torch": torch_facts(),
        "numpy": numpy_facts(),
        "startup": around.start_up_files(sys.path),
        "libraries": libraries(),  # last: by now they are all loaded
    }
    if os.environ.get(MODULES):
        more = around.observed(folders=sys.path)
        more["python"] = reported["python"]
        reported = dict(reported, modules=modules_on_disk(), **more)
    return {name: value for name, value in dict(launch.surroundings(), **reported).items() if value}


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
    return dict(reported, **around.build(built))


def modules_on_disk():
    """Which modules that can be imported here have no compiled file, and which are compiled extensions.

    A compiled file that is younger than this trial's work folder was made by the trial: there was none before.
    """
    began_ns = os.stat(INSIDE).st_mtime_ns
    missing, extensions, names = {}, set(), set()
    # Asked after the program, this process does not know the folder of the program; it may be the working folder.
    folders = sys.path + ([os.getcwd()] if __name__ == "__main__" else [])
    for folder in dict.fromkeys(map(os.path.abspath, folders)):
        if folder.startswith(INSIDE):
            continue
        every = sorted(_modules_in(folder, packages_only=folder not in sys.path))
        names.update(name.split(".")[0] for name, _ in every)
        bare = [name for name, source in every if not _is_compiled(source, began_ns)]
        if bare:
            missing[folder] = "all" if len(bare) == len(every) else bare
        extensions.update(os.path.relpath(path, folder).split(".")[0] for path in _extensions_in(folder))
    return {"looked": True, "uncompiled": missing, "extensions": sorted(extensions), "names": sorted(names)}


def _modules_in(folder, packages_only):
    """Name and source file of each module and package that lies directly in this folder."""
    for entry in _entries(folder):
        start = _start_of(entry)
        if start:
            yield entry.name, start
        elif entry.name.endswith(".py") and not packages_only:
            yield entry.name, entry.path


def _extensions_in(folder, depth=2):
    """Compiled modules in this folder and in the packages below it; folders of data are not walked."""
    for entry in _entries(folder):
        if entry.name.endswith(".so"):
            yield entry.path
        elif depth and _start_of(entry):
            for path in _extensions_in(entry.path, depth - 1):
                yield path


def _entries(folder):
    try:
        return list(os.scandir(folder))
    except OSError:  # it is not there, no folder, or not for this user to read
        return []


def _start_of(entry):
    """The file that is run when this package is imported; None if it is no package."""
    start = os.path.join(entry.path, "__init__.py")
    return start if entry.is_dir() and os.path.isfile(start) else None


def _is_compiled(source, began_ns):
    try:
        return os.stat(importlib.util.cache_from_source(source)).st_ctime_ns < began_ns
    except (OSError, NotImplementedError):
        return False


def libc():
    """Name and version of the C library: its own word where it has one, otherwise what the interpreter links to."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return " ".join(part for part in platform.libc_ver() if part)


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
    match = _VERSION.search(launch.read(_version_file(package) or ""))
    return match.group(1) if match else None


def _version_file(package):
    try:
        found = importlib.util.find_spec(package)
    except Exception:  # a finder of somebody else's may raise anything
        return None
    return os.path.join(os.path.dirname(found.origin), "version.py") if found and found.origin else None


def libraries():
    """Name and digest of the libraries in this process: the first and last MiB and the size, to stay quick."""
    found = {}
    for path in sorted(launch.mapped()):
        name = os.path.basename(path)
        if _LIBRARY.match(name):
            digest = around.digest(path)
            if digest is not None:
                found[name] = digest
    return found


def sources(begun_s):
    """Every file and folder that decides what is found of the software, with its state.

    Nothing if one is newer than a second before the first of them was read, or on a file system whose times are not
    this machine's: those of an image are made up, those of a network's are a server's.

    As long as they stay as they are the answers do too: modules and libraries of this process with their folders, what
    Python and the linker search, also where nothing is yet, and the files that name further folders.
    """
    site = sys.modules.get("site")
    searched = sys.path + os.environ.get("LD_LIBRARY_PATH", "").split(":") + [getattr(site, "USER_SITE", None)]
    mapped = {path for path in launch.mapped() if ".so" in os.path.basename(path) or not path.startswith("/dev/")}
    paths = mapped | {sys.executable} | {getattr(each, "__file__", None) for each in list(sys.modules.values())}
    paths |= {_version_file("torch"), _version_file("numpy")}
    paths |= {os.path.dirname(path) for path in paths if path}
    paths = paths.union(*(glob.glob(os.path.join(glob.escape(folder), "*.pth")) for folder in sys.path))
    paths |= {os.path.join(prefix, name) for prefix in (sys.prefix, sys.base_prefix) for name in ("pyvenv.cfg", "lib")}
    paths |= {os.path.join(os.path.dirname(sys.executable), "pyvenv.cfg"), "/etc/ld.so.cache", "/etc/ld.so.preload"}
    paths |= {"/lib", "/usr/lib", "/usr/local/lib"}.union(glob.glob("/etc/ld-musl-*.path"))  # musl has no cache
    # Ours is copied for each trial; devices and shared memory that are mapped are no software.
    there = {path for path in paths.union(searched) if path and path.startswith("/") and not path.startswith(INSIDE)}
    found = dict(zip(sorted(there), launch.states(sorted(there))))
    newest_ns = max(state[-1] for state in found.values() if state)
    kinds = set(launch.file_systems(None, {path: os.path.realpath(path) for path in found}).values())
    made_up = any(kind.startswith(_OTHER_CLOCKS) for kind in kinds)
    # What changes twice within a tick of the file system's clock has the same state.
    return {} if made_up or newest_ns >= (begun_s - 1) * 1e9 or "\n" in "".join(there) else found


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


def main():
    begun_s = time.time()
    found = gather()
    try:
        found["sources"] = sources(begun_s)
    except Exception:  # on odd entries of sys.path and odd modules; then the software is listed in every trial
        pass
    print(json.dumps(found, sort_keys=True))


if __name__ == "__main__":
    main()
