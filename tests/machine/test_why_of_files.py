"""A file in which two images differ is named among many, in real containers; files that no run touches are not."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from planted_images import PYTHON, python_image
from test_why_what_was_given import why

PARTS = 12
WORK = """\
import time
from tare_inside import marks
from parts import {names}
for step in range(12):
    marks.begin("step", step)
    time.sleep(0.003)
    for part in ({names}):
        part.work()
    marks.end("step", step)
"""


def archive_of(folder: Path, name: str, entry: list[str]) -> str:
    """An image as `docker save` writes it, of this root."""
    made = folder / f"{name}.saved"
    made.mkdir()
    subprocess.run(["tar", "-C", str(folder / name), "-cf", str(made / "layer.tar"), "."], check=True)
    layer = hashlib.sha256((made / "layer.tar").read_bytes()).hexdigest()
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    config = {
        "architecture": machine, "os": "linux", "config": {"Entrypoint": entry, "Env": ["PATH=/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
    }  # fmt: skip
    text = json.dumps(config)
    digest = hashlib.sha256(f"{name} {text}".encode()).hexdigest()
    (made / f"{digest}.json").write_text(text)
    (made / "manifest.json").write_text(json.dumps([{"Config": f"{digest}.json", "Layers": ["layer.tar"]}]))
    archive = folder / f"{name}.tar"
    subprocess.run(["tar", "-C", str(made), "-cf", str(archive), "."], check=True)
    return str(archive)


QUICK, SLOW = "def work():\n    pass\n", "import time\ndef work():\n    time.sleep(0.02)\n"


def two_images(folder: Path, **own: Mapping[str, str]) -> tuple[str, str]:
    """Two root file systems with the same program in /app, and the files of each by its name."""
    names = ", ".join(f"part{n}" for n in range(PARTS))
    shared = {"app/work.py": WORK.format(names=names), "app/parts/__init__.py": ""}
    shared |= {f"app/parts/part{n}.py": QUICK for n in range(PARTS)}
    for name, files in own.items():
        root = python_image(folder / name)
        (root / "usr" / "bin" / "python3").symlink_to(PYTHON)
        for path, text in {**shared, **files}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    slow, quick = own
    return str(folder / slow), str(folder / quick)


@pytest.mark.machine("runc", "root")
@pytest.mark.alone
def test_the_file_that_costs_is_named_among_many_that_differ(tmp_path: Path) -> None:
    others = {f"opt/untouched/{n}": "2" for n in range(300)}
    comments = {f"app/parts/part{n}.py": f"{QUICK}# of version 2\n" for n in range(PARTS)}
    slow, quick = two_images(tmp_path, app2={**others, **comments, "app/parts/part7.py": SLOW}, app1={})
    found = why(tmp_path, "--in", "runc", "--image", slow, "--against-image", quick, "--", "python3", "/app/work.py")

    words = {each["cause"]: each["outcome"] for each in found["answer"]["tried"]}
    assert words["software:/app/parts/part7.py"] == "the cause"
    assert found["answer"]["causes"] == ["software:/app/parts/part7.py"]
    assert found["suspects"]["software:/app/parts/part7.py"]["cure"].startswith("/app/parts/part7.py as in ")
    assert not any("untouched" in name or "part3.py" in name for name in words)


@pytest.mark.machine("runc", "root")
@pytest.mark.alone
def test_what_only_an_entry_point_costs_is_named(tmp_path: Path) -> None:
    """Two images of the same files; of a folder the entry point is known only where it is an OCI layout."""
    slow, _ = two_images(tmp_path, app2={"app/slow.sh": '#!/bin/sh\nsleep 1\nexec "$@"\n'}, app1={})
    Path(slow, "app/slow.sh").chmod(0o755)
    archives = [archive_of(tmp_path, name, entry) for name, entry in (("app2", ["/app/slow.sh"]), ("app1", []))]
    asked = ("--in", "runc", "--image", archives[0], "--against-image", archives[1])
    found = why(tmp_path, *asked, "--", "python3", "-c", "pass")

    assert found["answer"]["causes"] == ["entry_point"]
    assert found["suspects"]["entry_point"]["cure"] == "--entrypoint ''"


@pytest.mark.machine("runc", "root")
@pytest.mark.alone
def test_a_link_that_leads_to_another_program_is_named(tmp_path: Path) -> None:
    """Both programs lie in both images, so that no file differs but by the name that is called."""
    count = "#!/bin/sh\nn=0\nwhile [ $n -lt {} ]; do n=$((n+1)); done\n"  # itself, so that it is there when looked at
    tools = {f"opt/tool-{n}": count.format(most) for n, most in ((1, 100_000), (2, 1_000_000))}
    slow, quick = two_images(tmp_path, app2=tools, app1=tools)
    for root, number in ((slow, 2), (quick, 1)):
        for name in tools:
            Path(root, name).chmod(0o755)
        Path(root, "bin", "tool").symlink_to(f"/opt/tool-{number}")
    asked = ("--in", "runc", "--image", slow, "--against-image", quick)
    found = why(tmp_path, *asked, "--", "sh", "-c", "tool; tool; tool")

    assert found["answer"]["causes"] == ["software:/bin/tool"]
