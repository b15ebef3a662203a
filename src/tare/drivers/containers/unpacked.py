"""An image as a folder: its files as a container of it sees them, and what it sets for whatever runs in it.

Taken are a name that the Docker engine or Podman has, a tarball of `docker save` or `podman save`, an OCI layout (a
folder or a tarball of one), a SIF file (by Apptainer), and a folder that is a root file system already. The engine
puts the layers together, and Podman does for tarballs and OCI layouts. `pulling` fetches images that are not here.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.base.errors import ObstacleError, TareError, did_you_mean
from tare.base.files import state_dir
from tare.base.host import ImageConfig, LocalHost
from tare.base.processes import is_root
from tare.base.secrets import shown_env
from tare.drivers.containers import client, engine
from tare.drivers.containers.client import Client, is_installed
from tare.drivers.places import image_env, own_variables, users_env

_WITHIN_S = 1800
OF_APPTAINER = re.compile(r"(APPTAINER|SINGULARITY)_\w+|PS1|PROMPT_COMMAND|TERM|HOME|PWD|OLDPWD|SHLVL|_|USER|LOGNAME")
"""Variables that Apptainer sets in every container, whatever the image sets."""
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_OF_DOCKER = ".dockerenv"  # Docker's own, in each container
_NO_WORK = Path("/no/work/folder")  # of a command that is not run


@dataclass(frozen=True)
class Unpacked:
    """A root file system on this device."""

    root: Path
    config: ImageConfig
    id: str  # changes when the image does; empty for a folder, which may be another tomorrow

    def user(self) -> tuple[int, int]:
        """The ids of the user that the image names; root where it names none."""
        name, _, group = self.config.user.partition(":")
        uid, gid = _listed(self.root / "etc/passwd", name or "0")
        if group:
            gid, _ = _listed(self.root / "etc/group", group)
        return uid, gid


def is_path(reference: str) -> bool:
    """Whether an image is named by its place on this device, and not as an engine has it."""
    path = Path(reference)
    return reference.startswith(("/", "./", "../", "~")) or path.is_file() or (path / "oci-layout").is_file()


def refuse_no_image(reference: str) -> None:
    """A file that is no archive, or not there, is refused before anything is run."""
    path = Path(reference).expanduser()
    if not is_path(reference) and reference.endswith((".tar", ".tar.gz", ".tgz", ".sif")):
        hint = did_you_mean(path.name, [file.name for file in path.parent.glob("*.[ts]*")])
        raise ObstacleError(f"there is no file {reference} in {Path.cwd()}. {hint}".strip())
    if is_path(reference) and not path.exists():
        raise ObstacleError(f"no image {reference}: there is no such file or folder.")
    if is_path(reference) and path.is_file() and not (is_sif(reference) or tarfile.is_tarfile(path)):
        raise ObstacleError(
            f"{reference} is no image: it is neither a file of `docker save`, nor an OCI layout, nor a SIF file."
        )


def is_sif(reference: str) -> bool:
    """Whether this is an image of Apptainer or Singularity, by its first bytes."""
    return _sif_id(Path(reference).expanduser()) != ""


def _sif_id(path: Path) -> str:
    """The id that a SIF file got when it was made; empty for any other file."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError:
        return ""
    return f"sif-{head[48:64].hex()}" if head[32:41] == b"SIF_MAGIC" else ""


def unpacked(reference: str) -> Unpacked:
    """The image as a folder; done once for each image, and kept in the state folder."""
    path = Path(reference).expanduser()
    if is_path(reference) and path.is_dir() and not (path / "oci-layout").is_file():
        return Unpacked(path.resolve(), ImageConfig(), "")
    if is_path(reference) and (sif := _sif_id(path)):
        return _kept(sif) or _unpack_sif(path, sif)
    if not is_path(reference):
        owner, about = _engine_with(reference)
        return _kept(_id(about)) or _exported(owner, reference, about)
    note = _note(path) if path.is_file() else None
    if note is not None and note.is_file() and (kept := _kept(note.read_text())) is not None:
        return kept
    with _in_podman(path) as (private, name):
        about = private.image(name) or {}
        image = _kept(_id(about)) or _exported(private, name, about)
    if note is not None:
        note.write_text(image.id)
    return image


def _kept(image_id: str) -> Unpacked | None:
    """The image with this id, if it was unpacked before."""
    folder = state_dir() / "images" / image_id
    if not (folder / "config.json").is_file():
        return None
    return Unpacked(folder / "root", image_config(json.loads((folder / "config.json").read_text())), image_id)


def _note(path: Path) -> Path:
    """Where the id of the image in a file is noted, by what changes with the file and costs nothing to read."""
    seen = path.stat()
    known_as = f"{path.resolve()} {seen.st_ino} {seen.st_size} {seen.st_mtime_ns}"
    return _room() / f".of-{hashlib.sha256(known_as.encode()).hexdigest()}"


def _engine_with(name: str) -> tuple[Client, Mapping[str, Any]]:
    """The engine that has the image, and what it tells of it."""
    for each in engine.clients(LocalHost()):
        if (about := each.image(name)) is not None:
            return each, about
    raise ObstacleError(f"no image {name}: neither Podman nor a Docker engine that answers has it.")


def _id(about: Mapping[str, Any]) -> str:
    return str(about["Id"]).removeprefix("sha256:")


def image_config(config: Mapping[str, Any]) -> ImageConfig:
    """What Docker and OCI both call the `config` of an image."""
    entry = config.get("Entrypoint") or ()
    return ImageConfig(
        env=dict(variable.partition("=")[::2] for variable in config.get("Env") or ()),
        folder=config.get("WorkingDir") or "/",
        user=config.get("User") or "",
        entry=tuple(entry.split() if isinstance(entry, str) else entry),
    )


def as_changes(config: ImageConfig) -> list[str]:
    """The same as lines of a Dockerfile, for an engine that imports the folder."""
    lines = [f"ENV {name}={json.dumps(value)}" for name, value in config.env.items()]
    lines += [f"WORKDIR {config.folder}"] if config.folder != "/" else []
    lines += [f"USER {config.user}"] if config.user else []
    return lines + ([f"ENTRYPOINT {json.dumps(list(config.entry))}"] if config.entry else [])


@contextmanager
def packed(image: Unpacked) -> Iterator[Path]:
    """The folder as one archive, for an engine to import."""
    with tempfile.TemporaryDirectory(prefix="tare-image-", dir=_room()) as folder:
        archive = Path(folder) / "root.tar"
        _run("tar", "-c", "--numeric-owner", "-C", str(image.root), "-f", str(archive), ".")
        yield archive


def _pulled(private: Client, path: Path) -> str:
    """The id of the image that was in the file or folder."""
    reasons = []
    # Podman makes a name of the path of a layout, and a name has no capitals: it is given a link without any.
    link = Path("/var/tmp") / f"tare-{secrets.token_hex(8)}"
    link.symlink_to(path.resolve())
    try:
        for transport in ("oci",) if path.is_dir() else ("docker-archive", "oci-archive"):
            done = private.run("pull", "--quiet", f"{transport}:{link}", limit_s=_WITHIN_S)
            if done.code == 0:
                return done.out.split()[0]
            reasons.append(done.err.strip()[-500:])
    finally:
        link.unlink()
    raise ObstacleError("\n".join([f"{path}: the image cannot be read:", *reasons]))


def _room() -> Path:
    folder = state_dir() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _in_podman(path: Path) -> Iterator[tuple[Client, str]]:
    """A store of Podman's for this image alone, and the id of the image in it: the user's own store stays as it is."""
    host = LocalHost()
    if not is_installed(host, "podman"):
        raise ObstacleError(
            f"{path} is an image in layers, which Podman puts together, and it is not installed here: `apt-get install "
            f"podman`. Otherwise name the image as an engine has it (`docker load -i {path}`), a SIF file (`apptainer "
            "build`), or a folder with its files."
        )
    with (
        tempfile.TemporaryDirectory(prefix="tare-image-", dir=_room()) as folder,
        tempfile.TemporaryDirectory(prefix="tare-") as short,  # Podman takes at most 50 characters for it
    ):
        # Without root all files are the caller's, as in a folder that the caller unpacks.
        owners = [] if is_root(host) else ["--storage-opt=vfs.ignore_chown_errors=true"]
        store = [f"--root={folder}/root", f"--runroot={short}", "--storage-driver=vfs", *owners]
        private = client.podman(host, *store)
        try:
            yield private, _pulled(private, path)
        finally:
            if not is_root(host):  # its files belong to users of the caller's name space
                host.run(["podman", "unshare", "rm", "-rf", "--", f"{folder}/root", f"{short}/."])


@contextmanager
def _drafted(kept: Path) -> Iterator[Path]:
    """A folder to unpack into, all or nothing: it gets its name when it is whole."""
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=_room()))
    try:
        yield draft
        draft.chmod(0o755)
        with suppress(OSError) if kept.is_dir() else nullcontext():  # another run was quicker
            draft.rename(kept)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _exported(owner: Client, name: str, about: Mapping[str, Any]) -> Unpacked:
    """The files of an image that an engine has, in a folder of its own."""
    image_id = _id(about)
    with _drafted(_room() / image_id) as draft:
        archive, root = draft / "root.tar", draft / "root"
        root.mkdir(mode=0o755)
        owner.export(name, archive)
        _run("tar", "-x", "-p", "--numeric-owner", "-f", str(archive), "-C", str(root))
        archive.unlink()
        (root / _OF_DOCKER).unlink(missing_ok=True)
        (draft / "config.json").write_text(json.dumps(about.get("Config") or {}))
    image = _kept(image_id)
    assert image is not None
    return image


def _unpack_sif(file: Path, image_id: str) -> Unpacked:
    """The files of a SIF file in a folder, and the variables that Apptainer sets inside."""
    program = next((name for name in ("apptainer", "singularity") if shutil.which(name)), "")
    if not program:
        raise ObstacleError(f"{file} is a SIF file: only Apptainer or Singularity can unpack it, and neither is here.")
    with _drafted(_room() / image_id) as draft:
        listed = re.search(r"\|(\d+)-\d+ *\|FS \(Squashfs", _run(program, "sif", "list", str(file)))
        if listed is None:
            raise ObstacleError(f"{file} holds no squashfs file system: encrypted or writable SIF files are refused.")
        _run("unsquashfs", "-no-progress", "-offset", listed[1], "-dest", str(draft / "root"), str(file))
        seen = _run(program, "--silent", "exec", "--containall", "--no-eval", "--no-privs", str(file), "env", "-0")
        env = [line for line in seen.split("\0") if "=" in line and not OF_APPTAINER.fullmatch(line.partition("=")[0])]
        (draft / "config.json").write_text(json.dumps({"Env": env}))
    image = _kept(image_id)
    assert image is not None
    return image


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=_WITHIN_S, check=False)
    if done.returncode != 0:
        raise TareError(f"`{' '.join(argv)}` failed with code {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def _listed(file: Path, name: str) -> tuple[int, int]:
    """The third and fourth field of a line of /etc/passwd or /etc/group; a number stands for itself."""
    try:
        rows = [line.split(":") for line in file.read_text(errors="replace").splitlines()]
    except OSError:
        rows = []
    for row in rows:
        if len(row) >= 4 and name in (row[0], row[2]):
            return int(row[2]), int(row[3]) if row[3].isdigit() else int(row[2])
    if name.isdigit():
        return int(name), int(name) if file.name == "group" else 0
    raise ObstacleError(f"the image names the user {name!r}, and its {file.name} has none of that name.")


def image_facts(owner: Client, name: str) -> dict[str, Any]:
    """What is known of an image without running it: its architecture, and the variables of a command in it."""
    about = owner.image(name) or {}
    env = image_env(_NO_WORK, "default", image_config(about.get("Config") or {}), attach=False)
    machine = _MACHINES.get(about.get("Architecture", ""), about.get("Architecture"))
    return {"machine": machine, "variables": shown_env(own_variables(env, _NO_WORK))}


def variables_here() -> dict[str, str]:
    """The variables of a command of the user's on this device."""
    return shown_env(own_variables(users_env(_NO_WORK, "default", attach=False), _NO_WORK))
