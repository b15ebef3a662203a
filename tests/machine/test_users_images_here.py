"""Images as people have them: code that is only in the image, its own user, folder and entry point, without Python."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import warm_tare

import as_nobody
from tare.base.errors import ObstacleError
from tare.base.host import Exit, LocalHost, Site
from tare.drivers.containers import unpacked as unpacking
from tare.drivers.containers.unpacked import unpacked
from tare.parts import find
from tare.parts.workloads.command import Command
from tare.trial.tenants import prepare_workdir, remove_folders

NAMES = ("apptainer", "bare", "containerd", "docker", "podman", "runc")
PLATFORMS = [pytest.param(name, marks=pytest.mark.machine(name, "root", "busybox")) for name in NAMES]
SIF_RUNNERS = ("apptainer", "bare")
APPLETS = ("sh", "sleep", "cat", "ls", "id", "env", "pwd", "touch", "test")
PROGRAM = (
    '#!/bin/sh\necho "$MODE $EXTRA $(pwd) $(id -u):$(id -g) $*"; ls /app; cat "$2"; touch /app/new && touch /tmp/new\n'
)


def layer(files: Mapping[str, bytes | str], owned_by: int = 0) -> bytes:
    """A tar archive of these files; a text that begins with `->` is a link."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode, entry.uid, entry.gid = 0o755, owned_by, owned_by
            if name.endswith("/"):
                entry.type = tarfile.DIRTYPE
                entry.mode = 0o1777 if name == "tmp/" else 0o755
                tar.addfile(entry)
            elif isinstance(content, str) and content.startswith("->"):
                entry.type, entry.linkname = tarfile.SYMTYPE, content[2:]
                tar.addfile(entry)
            else:
                blob = content.encode() if isinstance(content, str) else content
                entry.size = len(blob)
                tar.addfile(entry, io.BytesIO(blob))
    return data.getvalue()


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An OCI layout of three layers around busybox, for a user of its own."""
    folder = tmp_path_factory.mktemp("layout")
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(data: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data), "mediaType": f"application/vnd.oci.image.{kind}"}

    busybox = Path(str(shutil.which("busybox"))).read_bytes()
    system = {
        "bin/": "",
        "etc/": "",
        "tmp/": "",
        "bin/busybox": busybox,
        "etc/passwd": "app:x:1234:1234::/app:/bin/sh\n",
    }
    archives = [
        layer({**system, **{f"bin/{name}": "->busybox" for name in APPLETS}, "gone/": "", "gone/file": "x"}),
        layer({"app/": "", "app/run": PROGRAM, "app/old": "x", "entry": '#!/bin/sh\nexec "$@" entered\n'}, 1234),
        layer({"app/.wh.old": "", "gone/.wh..wh..opq": "", "gone/new": "y"}),
    ]
    layers = [put(archive, "layer.v1.tar+gzip") for archive in archives]
    diffs = [f"sha256:{hashlib.sha256(gzip.decompress(archive)).hexdigest()}" for archive in archives]
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    config = {"Env": ["PATH=/bin", "MODE=mine"], "WorkingDir": "/app", "User": "app", "Entrypoint": ["/entry"]}
    rootfs = {"type": "layers", "diff_ids": diffs}
    about = {"architecture": machine, "os": "linux", "config": config, "rootfs": rootfs}
    image = put(json.dumps(about).encode(), "config.v1+json")
    manifest = put(json.dumps({"schemaVersion": 2, "config": image, "layers": layers}).encode(), "manifest.v1+json")
    described = {**manifest, "platform": {"architecture": machine, "os": "linux"}}
    other = {**put(b"{}", "manifest.v1+json"), "platform": {"architecture": "s390x", "os": "linux"}}
    both = put(json.dumps({"schemaVersion": 2, "manifests": [other, described]}).encode(), "index.v1+json")
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [both]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    yield folder
    tag = f"tare/taken:{image['digest'].partition(':')[2][:16]}"  # engines keep what they have imported
    for program in ("podman", "docker"):
        if shutil.which(program):
            subprocess.run([program, "rmi", "--force", f"localhost/{tag}"], capture_output=True, check=False)


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = Path("/var/tmp") / f"tare-{secrets.token_hex(3)}"
    folder.mkdir()
    monkeypatch.setenv("TARE_STATE", str(folder))
    yield folder
    shutil.rmtree(folder)


def run(name: str, image: str, *words: str, reads: tuple[Path, ...] = ()) -> tuple[Exit, Any]:
    work = Command(argv=words, in_image=True, env={"EXTRA": "1"}, reads=reads)
    assert work.obstacles(LocalHost()) == []
    site_name, scratch = f"tare-door-{secrets.token_hex(4)}", Path("/var/tmp") / f"tare-scratch-{secrets.token_hex(4)}"
    (scratch / site_name).mkdir(parents=True)
    workdir = prepare_workdir(site_name, scratch / site_name)
    try:
        site = Site(site_name, scratch / site_name, work.inputs(), (workdir,), layered=True)
        place = find.find("platforms", name)(image=image).open(LocalHost(), site)
        try:
            return place.spawn(work.job(place, workdir, 0)).wait(60), place
        finally:
            place.close()
    finally:
        remove_folders(site_name, scratch)
        scratch.rmdir()


@pytest.mark.machine("root", "busybox")
def test_layers_are_laid_over_each_other_and_what_was_deleted_is_gone(layout):
    image = unpacked(str(layout))

    assert sorted(path.name for path in (image.root / "app").iterdir()) == ["run"]
    assert [path.name for path in (image.root / "gone").iterdir()] == ["new"]
    assert (image.user(), (image.root / "app").stat().st_uid) == ((1234, 1234), 1234)
    assert unpacked(str(layout)) == image


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_program_of_the_image_runs_as_the_image_says_and_is_timed_without_python(name, layout, tmp_path):
    data = Path("/var/tmp") / f"tare-data-{secrets.token_hex(4)}"
    data.write_text("from the device\n")
    try:
        ends = [run(name, str(layout), "/app/run", "x", str(data), reads=(data,)) for _ in range(2)]
    finally:
        data.unlink()

    ids = "0:0" if name == "apptainer" else "1234:1234"  # it runs as the user that calls it
    for ended, place in ends:
        assert ended.out == f"mine 1 /app {ids} x {data} entered\nrun\nfrom the device\n", ended.err
        assert (ended.code, place.python) == (0, "")
        assert ended.seconds > 0


@pytest.mark.parametrize("name", PLATFORMS)
def test_the_images_own_user_can_write_to_the_work_folder_and_read_what_is_in_it(name, layout):
    """Else an image with Python and a user of its own ran in containers, and never on bare metal."""
    look = 'work="${TARE_MARKS%/*}"; touch "$work/new" && ls "$work/inside/tare_inside/launch.py"'

    ended, _ = run(name, str(layout), "/bin/sh", "-c", look)

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith("launch.py\n")


@pytest.mark.machine("root", "busybox", "runc")
def test_a_tarball_of_the_layout_is_taken_too(layout, tmp_path):
    subprocess.run(["tar", "-c", "-f", tmp_path / "image.tar", "-C", layout, "."], check=True)

    ended, _ = run("runc", str(tmp_path / "image.tar"), "/app/run", "x", "/etc/passwd")

    assert ended.out.startswith("mine 1 /app 1234:1234 x /etc/passwd entered\n")


@pytest.mark.machine("apptainer", "root", "busybox")
def test_a_sif_file_is_run_by_apptainer_as_it_is_and_elsewhere_from_a_folder(layout, tmp_path):
    sif = tmp_path / "image.sif"
    (unpacked(str(layout)).root / ".singularity.d" / "env").mkdir(parents=True)
    (unpacked(str(layout)).root / ".singularity.d" / "env" / "90-environment.sh").write_text("export MODE=sif\n")
    build = ["apptainer", "--silent", "build", str(sif), str(unpacked(str(layout)).root)]
    subprocess.run(build, check=True, capture_output=True)

    (inside, place), (outside, bare) = (run(name, str(sif), "/app/run", "x", "/etc/passwd") for name in SIF_RUNNERS)

    assert place.facts["image"] == "sif"
    assert bare.facts["image_id"].startswith("sif-")
    for ended in (inside, outside):
        assert ended.out.startswith("sif 1 / 0:0 x /etc/passwd\nrun\n"), ended.err
        assert ended.code == 0


@pytest.mark.machine("root", "busybox", "podman command")
def test_a_user_without_root_and_subordinate_ids_unpacks_files_of_other_users(layout, state):
    state.chmod(0o777)
    shutil.copytree(layout, state / "layout")
    (state / "layout").chmod(0o755)
    script = "import sys; from tare.drivers.containers.unpacked import unpacked; print(unpacked(sys.argv[1]).root)"

    done = as_nobody.run([sys.executable, "-c", script, f"{state}/layout"], state, env={"TARE_STATE": f"{state}/own"})

    assert done.returncode == 0, done.stderr
    made = Path(done.stdout.strip()) / "app" / "run"
    assert (made.read_text(), made.stat().st_uid) == (PROGRAM, as_nobody.UID)


@pytest.mark.machine("root", "busybox")
def test_an_archive_is_opened_once_for_all_trials_and_anew_when_it_has_changed(layout, tmp_path, monkeypatch):
    archive = tmp_path / "image.tar"
    subprocess.run(["tar", "-c", "-f", archive, "-C", layout, "."], check=True)
    first = unpacked(str(archive))
    opened: list[Path] = []
    real = unpacking._pulled
    monkeypatch.setattr(unpacking, "_pulled", lambda private, path: opened.append(path) or real(private, path))

    assert unpacked(str(archive)) == first
    assert opened == []
    os.utime(archive, ns=(0, 0))
    assert unpacked(str(archive)) == first
    assert opened == [archive]


def test_a_file_that_is_no_archive_is_refused_before_anything_is_run(tmp_path):
    (tmp_path / "app.tar").write_text("junk")
    with pytest.raises(ObstacleError, match="is no image"):
        unpacking.refuse_no_image(str(tmp_path / "app.tar"))


def test_an_archive_that_is_not_there_is_not_taken_for_a_name_in_a_registry(tmp_path, monkeypatch):
    (tmp_path / "app.tar").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ObstacleError, match=r"no file ap\.tar in .*\. Did you mean 'app\.tar'\?"):
        unpacking.refuse_no_image("ap.tar")


@pytest.mark.machine("root", "busybox", "runc")
def test_weighing_in_an_image_without_python_is_whole_and_says_what_is_compared(layout, tmp_path):
    words = ("weigh", "--in", "runc", "--blocks", "1", "--image", layout, "-o", tmp_path / "store")
    done = warm_tare.run(*words, "--", "/app/run", "x", "/etc/passwd", cwd=tmp_path)

    assert "the same bytes on both sides" in done.stderr
    assert done.returncode == 0, done.stderr
    records = [json.loads(path.read_text()) for path in (tmp_path / "store" / "trials").glob("*/record.json")]
    assert {record["settings"]["platform"] for record in records} == {"bare", "runc"}
    assert all(record["metrics"]["wall_s"] > 0 for record in records)
    assert all("image.no-python" in [note["code"] for note in record["notes"]] for record in records)
    assert "docker save" not in done.stderr
