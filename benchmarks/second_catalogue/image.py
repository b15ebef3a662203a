"""The base image of all plants: this machine's Python, tools, Java and Node, at the same paths."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

BASE = "second-catalogue:base"
OLDER = "second-catalogue:older"  # Only where pyenv has one.
TOOLS = (
    "bash dash env cat ls rm ln cp mv mkdir touch chmod true sleep head tail wc seq tr cut dd date stat sort uniq nice "
    "ionice taskset chrt prlimit unshare setpriv stdbuf timeout truncate strace sed grep awk mawk find xargs tar "
    "gzip bzip2 xz zstd lz4 openssl sqlite3 jq bc make git perl busybox node gcc as ld ldconfig id sync"
)
PACKAGES = (
    "torch numpy scipy numba llvmlite protobuf PyYAML msgpack tokenizers huggingface_hub cryptography cffi aiohttp "
    "multidict yarl propcache aiosignal frozenlist aiohappyeyeballs attrs idna duckdb sympy mpmath networkx setuptools "
    "Jinja2 MarkupSafe filelock fsspec typing_extensions packaging tqdm requests urllib3 certifi charset-normalizer"
)
TREES = (
    "/usr/lib/locale/C.utf8 /usr/share/zoneinfo /usr/share/perl /usr/share/nodejs /usr/lib/git-core /usr/lib/gcc "
    "/usr/libexec/coreutils /usr/lib/x86_64-linux-gnu/perl-base /usr/lib/x86_64-linux-gnu/perl /usr/lib/jvm "
    "/usr/include /etc/java-17-openjdk /etc/ssl /usr/lib/ssl /usr/share/ca-certificates /etc/ld.so.conf.d"
)
SINGLE = (
    "/etc/passwd /etc/group /etc/nsswitch.conf /etc/ld.so.conf /etc/ld.so.cache /etc/localtime /usr/bin/java "
    "/usr/bin/sh /usr/lib64/ld-linux-x86-64.so.2"
)
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
LOADED = ("libnss_*.so.2", "libresolv.so.2", "libgomp.so.1", "libc_malloc_debug.so.0", "*.o", "libc.so*", "libc_*.a",
          "libm.so*", "libgcc_s*", "libpthread*", "libmvec*")  # fmt: skip
SKIPPED = {"test", "tests", "idlelib", "tkinter", "ensurepip", "lib2to3", "site-packages", "src.zip", "jmods"}


def build() -> None:
    """Imports the base image, and one with an older Python, if the engine does not have them."""
    if subprocess.run(["docker", "image", "inspect", BASE], capture_output=True, check=False).returncode == 0:
        return
    for prefix in sorted(Path(sys.base_prefix).parent.glob("3.[5-8].*"))[:1]:
        with subprocess.Popen(["tar", "-c", "-C", prefix, "bin", "lib"], stdout=subprocess.PIPE) as packed:
            subprocess.run(["docker", "import", "-", OLDER], stdin=packed.stdout, check=True)
    path = f"ENV PATH={sys.prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    with subprocess.Popen(["docker", "import", "-c", path, "-", BASE], stdin=subprocess.PIPE) as importing:
        with tarfile.open(fileobj=importing.stdin, mode="w|") as archive:
            _fill(archive)
        importing.communicate()
    if importing.returncode:
        raise SystemExit(f"docker import ended with {importing.returncode}")


def _fill(archive: tarfile.TarFile) -> None:
    for name in ("proc", "sys", "dev", "run", "work", "root", "var", "usr", "usr/local", "usr/local/bin", "etc", "opt"):
        _special(archive, name, tarfile.DIRTYPE)
    for name in ("tmp", "var/tmp"):
        _special(archive, name, tarfile.DIRTYPE, mode=0o1777)
    for name in ("bin", "sbin", "lib", "lib64"):
        _special(archive, name, tarfile.SYMTYPE, link=f"usr/{name}")
    done: set[Path] = set()
    for path in sorted(_files()):
        _put(archive, path, done)


def _special(archive: tarfile.TarFile, name: str, kind: bytes, mode: int = 0o755, link: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname = kind, mode, link
    archive.addfile(entry, io.BytesIO())


def _put(archive: tarfile.TarFile, path: Path, done: set[Path]) -> None:
    path = path.parent.resolve() / path.name  # Else a file would take the place of a link of the merged /usr.
    if path in done or not (path.exists() or path.is_symlink()):
        return
    done.add(path)
    if path.is_symlink():
        _put(archive, path.parent / path.readlink(), done)
    archive.add(path, arcname=str(path).lstrip("/"), recursive=False)


def _files() -> set[Path]:
    found = [shutil.which(tool, path="/usr/bin:/usr/sbin") for tool in TOOLS.split()]
    files = {Path(path) for path in (*found, *SINGLE.split()) if path}
    files |= {Path(sys.prefix, "pyvenv.cfg"), *Path(sys.prefix, "bin").glob("python*")}
    files |= set(Path(sys.base_prefix, "bin").glob("python3*"))
    for tree in (*TREES.split(), f"{sys.base_prefix}/lib"):
        files |= _tree(Path(tree))
    for name in PACKAGES.split():
        files |= {Path(str(file.locate())) for file in metadata.files(name) or () if ".." not in file.parts}
    for pattern in LOADED:
        files |= set(LIBRARIES.glob(pattern))
    programs = [str(path) for path in files if path.is_file() and _is_elf(path)]
    for start in range(0, len(programs), 100):
        ldd = subprocess.run(["ldd", *programs[start : start + 100]], capture_output=True, text=True, check=False)
        files |= {Path(path) for path in re.findall(r"(/\S+) \(0x", ldd.stdout)}
    return files


def _tree(folder: Path) -> set[Path]:
    files = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path for path in files if not SKIPPED & set(path.relative_to(folder).parts)}


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
