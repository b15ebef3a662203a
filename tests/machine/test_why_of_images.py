"""Of two images with Docker that differ in hundreds of files the one that costs is named, and a decoy is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from planted_images import PYTHON, python_image
from test_why_what_was_given import SUMS, site_packages, why

from tare.base.host import ImageConfig, LocalHost
from tare.drivers.containers import engine
from tare.drivers.containers.unpacked import Unpacked, as_changes, packed

PLAIN = {"PATH": "/usr/bin:/bin"}


@contextmanager
def imported(root: Path, name: str, env: Mapping[str, str] = PLAIN, *tags: str) -> Iterator[str]:
    """An image of this folder, under its name and further tags."""
    repository, _, tag = name.partition(":")
    with engine.opened(LocalHost()) as client, packed(Unpacked(root, ImageConfig(env), "")) as archive:
        client.import_archive(archive, name, as_changes(ImageConfig(env)))
        for other in tags:
            client.checked("name it", "tag", name, f"{repository}:{other}")
        try:
            yield name
        finally:
            for each in (tag, *tags):
                client.checked("remove it", "image", "rm", "--force", f"{repository}:{each}")


def root_of(folder: Path, files: Mapping[str, str]) -> Path:
    root = python_image(folder)
    (root / "usr" / "bin" / "python3").symlink_to(PYTHON)
    for path, text in {"app/work.py": SUMS, **files}.items():
        (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (root / path.lstrip("/")).write_text(text)
    return root


STARTS = """\
import builtins, time
ours = builtins.sum
builtins.sum = lambda *words: (time.sleep(0.03), ours(*words))[1]
"""


@pytest.mark.machine("docker", "root")
@pytest.mark.alone
def test_one_guilty_pth_among_two_hundred_differences_is_named_and_a_decoy_is_not(tmp_path: Path) -> None:
    packages = site_packages()
    same = {f"{packages}/library{n}.py": "VERSION = 1\n" for n in range(100)}
    other = dict.fromkeys(same, "VERSION = 2\n") | {f"/opt/data/{n}": "2" for n in range(100)}
    guilty = {f"{packages}/guilty.pth": "import hook_of_tracing\n", f"{packages}/hook_of_tracing.py": STARTS}
    program = f"import {', '.join(f'library{n}' for n in range(12))}\n{SUMS}"
    roots = [root_of(tmp_path / name, {"app/work.py": program, **files}) for name, files in (
        ("app-1", same), ("app-2", {**same, **other, **guilty}))]  # fmt: skip
    quick = imported(roots[0], "tare-test-needle:1")
    slow = imported(roots[1], "tare-test-needle:2", {**PLAIN, "CUDA_LAUNCH_BLOCKING": "1"})
    with quick, slow:
        asked = ("--in", "docker", "--image", "tare-test-needle:2", "--against-image", "tare-test-needle:1")
        found = why(tmp_path, *asked, "--", "python3", "/app/work.py")

    causes = found["answer"]["causes"]
    assert causes == ["start_up_files"]
    assert found["suspects"]["start_up_files"]["cure"] == f"without {packages}/guilty.pth"
