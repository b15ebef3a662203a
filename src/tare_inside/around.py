"""What is installed and set up around a program, read from files alone: of this process, or of another from outside.

Nothing is run for it, so that an image without a Python is read too: `root` is then /proc/PID/root of its process.
"""

import ast
import glob
import hashlib
import importlib.machinery
import os
import re

try:
    from tare_inside import launch
except ImportError:  # as a script's neighbour
    import launch

KEYS = ("packages", "startup", "python", "resolver", "pages", "clock", "gpu")  # of `observed`
_LIBRARIES = (
    "usr/local/lib/python3*", "usr/lib/python3*", "opt/*/lib/python3*", "opt/*/*/lib/python3*", "root/*/lib/python3*",
    "home/*/*/lib/python3*", "app/*/lib/python3*", "app/.venv/lib/python3*", "venv/lib/python3*",
)  # fmt: skip
_PACKAGES = ("site-packages", "dist-packages")
_METADATA = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)(?:-py\d[^-]*)?\.(?:dist|egg)-info$")
_FLAGS = re.compile(r"--(?:with|without|enable|disable)-[a-z0-9-]+(?:=(?:yes|no|[a-z0-9,]+)(?=[' ]|$))?")
_LEVEL = re.compile(r"-O(?:\d|s|z|g|fast)\b|-march=\S+|-fno-omit-frame-pointer\b|-fno-semantic-interposition\b")
_MOST_READ = 4 << 20
_LARGEST_BYTES = 1 << 20  # of a start-up file, at each end


def observed(pid="self", root="/", folders=None):
    """All that KEYS names. `folders`: where Python finds its modules; by default looked for below the root."""
    libraries = libraries_of(pid, root) if folders is None else []
    if folders is None:
        folders = [folder for library in libraries for folder in _below(library, root)]
    return {
        "packages": {"looked": True, "python": distributions(folders, root), "system": system_packages(root)},
        "startup": start_up_files(folders, root),
        "python": interpreter(libraries, root),
        "resolver": resolver(pid, root),
        "pages": dict({"looked": True}, **huge_pages()),
        "clock": {"source": _line("/sys/devices/system/clocksource/clocksource0/current_clocksource")},
        "gpu": {"looked": True, "devices": gpu_devices(root)},
    }


def inside(root, path):
    """A path of this root, where it lies for us; its links are followed within the root."""
    if root == "/":
        return path
    root, at = root.rstrip("/"), ""
    parts, followed = [part for part in path.split("/") if part], 0
    while parts:
        part = parts.pop(0)
        if part == "..":
            at = os.path.dirname(at)
            continue
        try:
            link = os.readlink(root + at + "/" + part)
        except OSError:
            at += "/" + part
            continue
        followed += 1
        if followed > 40:  # as the kernel does: a loop
            return root + at + "/" + part
        at = "" if link.startswith("/") else at
        parts = [each for each in link.split("/") if each and each != "."] + parts
    return root + (at or "/")


def libraries_of(pid, root):
    """The folders with a Python's own modules: that of the process first, if it runs one."""
    own = [match.group(1) for match in (re.match(r"(/.*/lib/python3[^/]*)/", path) for path in launch.mapped(pid))
           if match]  # fmt: skip
    there = [path for pattern in _LIBRARIES for path in sorted(glob.glob(os.path.join(root, pattern)))]
    known = own + [path[len(root.rstrip("/")) :] for path in there]
    return [path for path in dict.fromkeys(known) if os.path.isdir(inside(root, path))]


def _below(library, root):
    """A Python's own modules and its packages; Debian keeps those of all versions of 3 in one folder."""
    shared = [os.path.join(os.path.dirname(library), "python3", "dist-packages")]
    named = [library] + [os.path.join(library, name) for name in _PACKAGES] + shared
    return [folder for folder in named if os.path.isdir(inside(root, folder))]


def distributions(folders, root="/"):
    """Name -> version of what pip and others installed; of two of one name the first is imported."""
    found = {}
    for folder in folders:
        for name in _names(inside(root, folder or os.getcwd())):
            match = _METADATA.match(name)
            if match:
                found.setdefault(match.group("name").lower().replace("-", "_"), match.group("version"))
    return found


def system_packages(root="/"):
    """Name -> version of the packages of the distribution: of dpkg, or of apk."""
    found = {}
    for block in _text(inside(root, "/var/lib/dpkg/status")).split("\n\n"):
        held = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != " " and ": " in line)
        if held.get("Status", "").endswith(" installed") and "Version" in held:
            found[held.get("Package", "")] = held["Version"]
    for name in _names(inside(root, "/var/lib/dpkg/status.d")):  # of images without a package manager
        held = dict(line.split(": ", 1) for line in _text(inside(root, "/var/lib/dpkg/status.d/" + name)).splitlines()
                    if line[:1] != " " and ": " in line)  # fmt: skip
        if "Package" in held and "Version" in held:
            found[held["Package"]] = held["Version"]
    for block in _text(inside(root, "/lib/apk/db/installed")).split("\n\n"):
        held = dict(line.split(":", 1) for line in block.splitlines() if line[1:2] == ":")
        if "P" in held and "V" in held:
            found[held["P"]] = held["V"]
    return found


def start_up_files(folders, root="/"):
    """What every Python here runs or loads before a program: path and digest of what is run."""
    ours = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inside_site")
    folders = [folder for folder in folders if os.path.abspath(folder or ".") != ours]
    modules = [_module_file(name, folders, root) for name in ("sitecustomize", "usercustomize")]
    found = {path: digest(inside(root, path)) for path in modules + ["/etc/ld.so.preload"] if path}
    for folder in folders:
        for name in _names(inside(root, folder or ".")):
            if not name.endswith(".pth"):
                continue
            path = os.path.join(folder, name)
            # The lines that are run, as the site module does it; others only name a folder.
            text = _text(inside(root, path))
            lines = [line for line in text.splitlines() if line.startswith(("import ", "import\t"))]
            found[path] = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32] if lines else None
    return {"looked": True, "files": {path: known for path, known in found.items() if known}}


def _module_file(name, folders, root):
    if root == "/":
        try:
            found = importlib.machinery.PathFinder.find_spec(name, folders)
        except Exception:  # an odd entry of sys.path
            return None
        return found.origin if found is not None and found.origin and os.path.isfile(found.origin) else None
    paths = [os.path.join(folder, *each) for folder in folders for each in ((name + ".py",), (name, "__init__.py"))]
    return next((path for path in paths if os.path.isfile(inside(root, path))), None)


def interpreter(libraries, root="/"):
    """How the first of these Pythons was built, by the file that its sysconfig reads; None where there is none."""
    for library in libraries:
        for name in _names(inside(root, library)):
            if name.startswith("_sysconfigdata") and name.endswith(".py"):
                assigned = _text(inside(root, library + "/" + name)).partition("build_time_vars = ")[2]
                try:
                    return build(ast.literal_eval(assigned))
                except (ValueError, SyntaxError, MemoryError, RecursionError):
                    continue
    return None


def build(variables):
    """What of an interpreter's build changes its speed, from the variables of its sysconfig."""
    flags = "%s %s" % (variables.get("CONFIG_ARGS") or "", variables.get("PY_CORE_CFLAGS") or "")
    compiler = "%s %s" % (variables.get("OPT") or "", variables.get("PY_CFLAGS") or "")
    return {
        "debug": bool(variables.get("Py_DEBUG")),
        "shared": bool(variables.get("Py_ENABLE_SHARED")),
        "optimized": "--enable-optimizations" in flags or "-fprofile-use" in flags,
        "lto": "--with-lto" in flags or "-flto" in flags,
        "gil": not variables.get("Py_GIL_DISABLED"),
        "compiled": " ".join(sorted(set(_LEVEL.findall(compiler)))),
        "configured": " ".join(sorted(set(_FLAGS.findall(variables.get("CONFIG_ARGS") or "")))),
    }


def resolver(pid="self", root="/"):
    """How names are looked up: the servers by their number, since an address says where somebody is."""
    found = {"looked": True, "servers": 0, "search": 0, "ndots": 1}
    for line in _text(inside(root, "/etc/resolv.conf")).splitlines():
        words = line.split()
        if words[:1] == ["nameserver"]:
            found["servers"] += 1
        elif words[:1] == ["search"]:
            found["search"] = len(words) - 1
        elif words[:1] == ["options"]:
            for word in words[1:]:
                name, _, value = word.partition(":")
                found[name] = int(value) if value.isdigit() else True
    addresses = _text("/proc/%s/net/if_inet6" % pid).splitlines()
    found["ipv6"] = any(not line.endswith(" lo") for line in addresses)
    return found


def huge_pages():
    """What the device does with transparent huge pages: the mode in force."""
    folder, found = "/sys/kernel/mm/transparent_hugepage/", {}
    for name in ("enabled", "defrag", "shmem_enabled"):
        match = re.search(r"\[(\w+)\]", _text(folder + name))
        if match:
            found[name] = match.group(1)
    return found


def gpu_devices(root="/"):
    """How many GPUs are there to be opened; none where a variable of CUDA cannot cost anything."""
    patterns = ("dev/nvidia[0-9]*", "dev/kfd", "dev/dxg", "dev/nvhost-ctrl-gpu", "dev/nvgpu/*")
    return sum(len(glob.glob(os.path.join(root, pattern))) for pattern in patterns)


def digest(path):
    """Of the size, the first and the last MiB; None where it cannot be read."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            made = hashlib.sha256(str(size).encode())
            made.update(file.read(_LARGEST_BYTES))
            file.seek(max(0, size - _LARGEST_BYTES))
            made.update(file.read(_LARGEST_BYTES))
    except OSError:
        return None
    return made.hexdigest()[:32]


def _names(folder):
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _line(path):
    return _text(path).strip() or None


def _text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_READ)
    except (OSError, ValueError):
        return ""
