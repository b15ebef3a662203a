"""A variable that an image sets is compared, tried and named, in real containers; no secret of it is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from planted_images import PYTHON, python_image
from test_why_what_was_given import tare, why

from tare.base.host import ImageConfig, LocalHost
from tare.drivers.containers import engine
from tare.drivers.containers.unpacked import Unpacked, as_changes, packed

CANARY = "CANARYcanary7"
SECRET = {
    "DATABASE_URL": f"postgres://ada:{CANARY}@db/app",
    "HTTPS_PROXY": f"http://ada:{CANARY}@proxy:3128",
    "APP_SETTING": CANARY,
}
WORK = """\
import os
from tare_inside import marks
for step in range(6):
    marks.begin("step", step)
    for _ in range(12 if os.environ.get("PYTHONMALLOC") == "debug" else 2):
        sum(len(str(n)) for n in range(20_000))
    marks.end("step", step)
"""


@pytest.fixture
def images(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """Two images of the same files: the one of version 2 has more variables."""
    root = python_image(tmp_path / "root")
    (root / "usr" / "bin" / "python3").symlink_to(PYTHON)
    (root / "app").mkdir()
    (root / "app" / "work.py").write_text(WORK)
    envs: dict[str, Mapping[str, str]] = {"1": {}, "2": {"PYTHONMALLOC": "debug", **SECRET}}
    made = {version: f"tare-test-environment:{version}" for version in envs}
    with engine.opened(LocalHost()) as client, packed(Unpacked(root, ImageConfig(), "")) as archive:
        for version, env in envs.items():
            changes = as_changes(ImageConfig({"PATH": "/usr/bin:/bin", **env}))
            client.import_archive(archive, made[version], changes)
        yield made
        for image in made.values():
            client.checked("remove it", "image", "rm", "--force", image)


@pytest.mark.machine("docker", "root")
@pytest.mark.alone
def test_a_variable_of_the_image_is_named_and_no_secret_of_it_is_kept(
    tmp_path: Path, images: Mapping[str, str]
) -> None:
    asked = ("--in", "docker", "--image", images["2"], "--against-image", images["1"])
    found = why(tmp_path, *asked, "--", "python3", "/app/work.py")

    tried = {each["cause"]: each["outcome"] for each in found["answer"]["tried"]}
    assert tried["debug_variables"] == "the cause"
    assert found["suspects"]["debug_variables"]["cure"] == "env -u PYTHONMALLOC COMMAND..."
    assert "other_variables" in found["suspects"]  # the secrets differ, too
    assert found["located"] == []
    checked = tare(tmp_path, "doctor", "--image", images["2"])
    assert "DATABASE_URL" in checked
    kept = [
        checked.encode(),
        str(found).encode(),
        *(path.read_bytes() for path in tmp_path.rglob("*") if _is_kept(path)),
    ]
    assert not any(CANARY.encode() in each for each in kept)


def _is_kept(path: Path) -> bool:
    return path.is_file() and path.parts[-2] != "root" and ("why" in path.parts or "state" in path.parts)
