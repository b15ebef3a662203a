"""Small images of this interpreter, as folders: two of them that differ in what Python was built with."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

PYTHON = str(Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}").resolve())
_PROGRAMS = (PYTHON, "/bin/sh", "/bin/sleep", "/bin/cat", "/usr/bin/env")
_UNUSED = ("site-packages", "dist-packages", "test", "tests", "idlelib", "config-*", "__pycache__", "ensurepip", "*.a")


def python_image(root: Path, without: str = "", more: tuple[str, ...] = ()) -> Path:
    """A root file system with Python, its library but one compiled module, a shell, and `more` programs."""
    for program in (*_PROGRAMS, *more):
        found = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for path in (program, *re.findall(r"/\S+", found)):
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(Path(path).resolve(), target)
    version = f"lib/python{sys.version_info.major}.{sys.version_info.minor}"
    library = root / sys.base_prefix.lstrip("/") / version
    shutil.copytree(
        Path(sys.base_prefix, version),
        library,
        symlinks=True,
        ignore=shutil.ignore_patterns(*_UNUSED),
        dirs_exist_ok=True,
    )
    for name in ("tmp", "proc", "sys", "dev", "etc", "run"):
        (root / name).mkdir(exist_ok=True)
    if without:
        (module,) = (library / "lib-dynload").glob(f"{without}.*.so")
        module.unlink()
    return root
