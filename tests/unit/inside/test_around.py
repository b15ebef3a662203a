"""What is installed and set up in a root, read from its files alone."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tare_inside import around


def test_what_pip_installed_here_is_what_pip_says() -> None:
    found = {name.replace(".", "_"): version for name, version in around.distributions(sys.path).items()}
    listed: dict[str, str] = {}
    for each in importlib.metadata.distributions():  # the first of a name is the one that is imported
        listed.setdefault(each.name.lower().replace("-", "_").replace(".", "_"), each.version)

    assert listed and found == listed


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="this system has no dpkg")
def test_what_the_distribution_installed_here_is_what_dpkg_says() -> None:
    asked = ["dpkg-query", "--show", "--showformat", "${db:Status-Status} ${Package} ${Version}\\n"]
    rows = [line.split() for line in subprocess.check_output(asked, text=True).splitlines()]

    assert around.system_packages() == {row[1]: row[2] for row in rows if row[0] == "installed"}


def test_this_process_is_seen_from_outside_as_it_sees_itself() -> None:
    found = around.observed(os.getpid(), f"/proc/{os.getpid()}/root")

    assert found["python"] == around.build(sysconfig.get_config_vars())
    assert found["packages"]["system"] == around.system_packages()
    assert found["resolver"] == around.resolver() and found["pages"]["looked"]


# As apk and distroless images have it, and resolv.conf as a pod of Kubernetes.
FILES = {
    "lib/apk/db/installed": "C:Q1abc\nP:musl\nV:1.2.4-r2\nA:x86_64\n\nC:Q1def\nP:python3\nV:3.11.8-r0\nF:usr/bin\n",
    "var/lib/dpkg/status.d/libssl3": "Package: libssl3\nVersion: 3.0.11-1\nDescription: a library\n Version: none\n",
    "run/resolv.conf": "nameserver 10.96.0.10\nsearch a.svc.cluster.local svc.cluster.local\noptions ndots:5 use-vc\n",
    "usr/lib/python3.11/site-packages/Torch_X-2.1.0+cpu.dist-info/METADATA": "",
    "usr/lib/python3.11/site-packages/guilty.pth": "/a/folder\nimport hook\n",
    "usr/lib/python3.11/site-packages/harmless.pth": "/a/folder\n",
    "usr/lib/python3.11/sitecustomize.py": "import gc\n",
    "usr/lib/python3.11/_sysconfigdata__linux_x86_64.py": (
        "build_time_vars = {'CONFIG_ARGS': \"'--prefix=/usr' '--enable-shared' '--without-pymalloc'\",\n"
        " 'Py_DEBUG': 0, 'Py_ENABLE_SHARED': 1, 'Py_GIL_DISABLED': 1, 'OPT': '-g -O0 -Wall'}\n"
    ),
}


def test_a_root_without_a_running_python_is_read_from_its_files(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/resolv.conf").symlink_to("/run/resolv.conf")  # which is not the file of this machine
    found = around.observed(1 << 30, str(tmp_path))

    assert found["packages"]["system"] == {"musl": "1.2.4-r2", "python3": "3.11.8-r0", "libssl3": "3.0.11-1"}
    assert found["packages"]["python"] == {"torch_x": "2.1.0+cpu"}
    library = "/usr/lib/python3.11"
    assert {*found["startup"]["files"]} == {f"{library}/sitecustomize.py", f"{library}/site-packages/guilty.pth"}
    assert {name: found["resolver"][name] for name in ("ndots", "servers", "search", "use-vc")} == {
        "ndots": 5, "servers": 1, "search": 2, "use-vc": True,
    }  # fmt: skip
    assert found["python"] == {
        "debug": False, "shared": True, "optimized": False, "lto": False, "gil": False, "compiled": "-O0",
        "configured": "--enable-shared --without-pymalloc",
    }  # fmt: skip
    assert found["gpu"] == {"looked": True, "devices": 0}


def test_a_link_does_not_lead_out_of_the_root(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("../../../etc")
    (tmp_path / "loop").symlink_to("loop")

    assert around.inside(str(tmp_path), "/a/passwd") == f"{tmp_path}/etc/passwd"
    assert not Path(around.inside(str(tmp_path), "/loop/x")).exists()
