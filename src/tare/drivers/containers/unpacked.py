"""An image as a folder: its layers laid over each other, and what it sets for whatever runs in it.

Taken are a name that the Docker engine or Podman has, a tarball of `docker save` or `podman save`, an OCI layout (a
folder or a tarball of one), a SIF file (by Apptainer), and a folder that is a root file system already. `pulling`
fetches others.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.base.errors import ObstacleError, TareError, did_you_mean
from tare.base.files import state_dir
from tare.base.host import ImageConfig, LocalHost
from tare.drivers.containers import engine

_WITHIN_S = 1800
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
OF_APPTAINER = re.compile(r"(APPTAINER|SINGULARITY)_\w+|PS1|PROMPT_COMMAND|TERM|HOME|PWD|OLDPWD|SHLVL|_|USER|LOGNAME")
"""Variables that Apptainer sets in every container, whatever the image sets."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


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
        hint = did_you_mean(path.name, [each.name for each in path.parent.glob("*.[ts]*")])
        raise ObstacleError(f"there is no file {reference} in {Path.cwd()}. {hint}".strip())
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
    note = _note(reference)
    if note is not None and note.is_file() and (found := _kept(note.read_text())) is not None:
        return found
    with _opened(reference) as folder:
        manifest = _manifest(reference, folder)
        if (found := _kept(manifest.id)) is None:
            _unpack(manifest, state_dir() / "images" / manifest.id)
            found = _kept(manifest.id)
    assert found is not None
    if note is not None:
        note.write_text(manifest.id)
    return found


def _kept(image_id: str) -> Unpacked | None:
    """The image with this id, if it was unpacked before."""
    folder = state_dir() / "images" / image_id
    if not (folder / "config.json").is_file():
        return None
    return Unpacked(folder / "root", image_config(json.loads((folder / "config.json").read_text())), image_id)


def _note(reference: str) -> Path | None:
    """Where the image's id is noted, by what changes with it and costs nothing to ask; None for what is open anyway."""
    path = Path(reference).expanduser()
    if not is_path(reference):
        known_as = _engines_id(reference)
    elif path.is_file():
        seen = path.stat()
        known_as = f"{path.resolve()} {seen.st_ino} {seen.st_size} {seen.st_mtime_ns}"
    else:
        return None
    return _room() / f".of-{hashlib.sha256(known_as.encode()).hexdigest()}" if known_as else None


def _engines_id(name: str) -> str:
    """What the engine that has it calls it; empty where none has."""
    host = LocalHost()
    asked = host.run(["podman", "image", "inspect", "--format", "{{.Id}}", name])
    if asked.code == 0:
        return f"podman {asked.out.strip()}"
    if engine.find() is None:
        return ""
    from docker.errors import ImageNotFound

    with closing(engine.connect(host)) as client, engine.errors(f"look for the image {name}"):
        try:
            return f"docker {client.api.inspect_image(name)['Id']}"
        except ImageNotFound:
            return ""


def image_config(config: Mapping[str, Any]) -> ImageConfig:
    """What Docker and OCI both call the `config` of an image."""
    entry = config.get("Entrypoint") or ()
    return ImageConfig(
        env=dict(each.partition("=")[::2] for each in config.get("Env") or ()),
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


@dataclass(frozen=True)
class _Manifest:
    id: str
    config: Path
    layers: tuple[Path, ...]  # the lowest first


@contextmanager
def _opened(reference: str) -> Iterator[Path]:
    """A folder with the image's blobs: an OCI layout, or what `docker save` writes."""
    path = Path(reference).expanduser()
    if is_path(reference) and path.is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tare-image-", dir=_room()) as made:
        folder = Path(made) / "blobs"
        folder.mkdir()
        archive = path
        if not is_path(reference):
            archive = Path(made) / "saved.tar"
            _save(reference, archive)
        elif not path.is_file():
            raise ObstacleError(f"no image {reference}: there is no such file or folder.")
        _run("tar", "-x", "-f", str(archive), "-C", str(folder))
        yield folder


def _room() -> Path:
    folder = state_dir() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _save(name: str, archive: Path) -> None:
    """From whichever engine has it."""
    host = LocalHost()
    if host.run(["podman", "image", "exists", name]).code == 0:
        host.run(["podman", "save", "--quiet", "-o", str(archive), name], limit_s=_WITHIN_S).checked()
        return
    if engine.find() is None:
        raise ObstacleError(f"no image {name}: Podman has none, and no Docker engine answers that may have it.")
    with closing(engine.connect(host)) as client, engine.errors(f"save the image {name}"), archive.open("wb") as file:
        client.api.timeout = _WITHIN_S
        for chunk in client.api.get_image(name):
            file.write(chunk)


def _manifest(reference: str, folder: Path) -> _Manifest:
    try:
        if (folder / "manifest.json").is_file():
            (listed, *_) = json.loads((folder / "manifest.json").read_text())
            config = folder / listed["Config"]
            return _Manifest(config.stem, config, tuple(folder / layer for layer in listed["Layers"]))
        if (folder / "oci-layout").is_file():
            found = _of_this_machine(folder, json.loads((folder / "index.json").read_text()))
            config = _blob(folder, found["config"])
            return _Manifest(config.name, config, tuple(_blob(folder, layer) for layer in found["layers"]))
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ObstacleError(f"{reference}: the image cannot be read: {error!r}.") from None
    raise ObstacleError(f"{reference}: this is neither an OCI layout nor what `docker save` writes.")


def _of_this_machine(folder: Path, index: Mapping[str, Any]) -> Mapping[str, Any]:
    """The manifest in an index, which may list one for each architecture, or further indexes."""
    listed = index["manifests"]
    ours = _ARCHITECTURES.get(platform.machine(), platform.machine())
    fitting = [each for each in listed if (each.get("platform") or {}).get("architecture", ours) == ours]
    found: Mapping[str, Any] = json.loads(_blob(folder, (fitting or listed)[0]).read_text())
    return _of_this_machine(folder, found) if "manifests" in found else found


def _blob(folder: Path, described: Mapping[str, Any]) -> Path:
    kind, _, digest = str(described["digest"]).partition(":")
    if "/" in kind or "/" in digest:
        raise ValueError(f"{described['digest']} is no digest")
    return folder / "blobs" / kind / digest


def _unpack(manifest: _Manifest, kept: Path) -> None:
    """All or nothing: the folder gets its name when it is whole."""
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=_room()))
    try:
        root = draft / "root"
        root.mkdir(mode=0o755)
        for layer in manifest.layers:
            _lay_over(layer, root)
        config = json.loads(manifest.config.read_text()).get("config") or {}
        (draft / "config.json").write_text(json.dumps(config))
        draft.chmod(0o755)
        with suppress(OSError) if kept.is_dir() else nullcontext():  # another run was quicker
            draft.rename(kept)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _unpack_sif(file: Path, image_id: str) -> Unpacked:
    """The files of a SIF file in a folder, and the variables that Apptainer sets inside."""
    program = next((name for name in ("apptainer", "singularity") if shutil.which(name)), "")
    if not program:
        raise ObstacleError(f"{file} is a SIF file: only Apptainer or Singularity can unpack it, and neither is here.")
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=_room()))
    try:
        listed = re.search(r"\|(\d+)-\d+ *\|FS \(Squashfs", _run(program, "sif", "list", str(file)))
        if listed is None:
            raise ObstacleError(f"{file} holds no squashfs file system: encrypted or writable SIF files are refused.")
        _run("unsquashfs", "-no-progress", "-offset", listed[1], "-dest", str(draft / "root"), str(file))
        seen = _run(program, "--silent", "exec", "--containall", "--no-eval", "--no-privs", str(file), "env", "-0")
        env = [line for line in seen.split("\0") if "=" in line and not OF_APPTAINER.fullmatch(line.partition("=")[0])]
        (draft / "config.json").write_text(json.dumps({"Env": env}))
        draft.chmod(0o755)
        kept = _room() / image_id
        with suppress(OSError) if kept.is_dir() else nullcontext():  # another run was quicker
            draft.rename(kept)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    found = _kept(image_id)
    assert found is not None
    return found


def _lay_over(layer: Path, root: Path) -> None:
    """One layer over those before it: what it marks as deleted goes first."""
    for name in _run("tar", "-t", "-f", str(layer)).splitlines():
        path = root / name.lstrip("/")
        if path.name == _OPAQUE and _is_within(path.parent, root):
            for each in path.parent.iterdir():
                _delete(each)
        elif path.name.startswith(_WHITEOUT) and path.name != _OPAQUE and _is_within(path.parent, root):
            _delete(path.with_name(path.name.removeprefix(_WHITEOUT)))
    _run("tar", "-x", "-p", "--numeric-owner", f"--exclude={_WHITEOUT}*", "-f", str(layer), "-C", str(root))


def _is_within(folder: Path, root: Path) -> bool:
    """Whether a folder is there and no link leads out of the image."""
    return folder.is_dir() and folder.resolve().is_relative_to(root.resolve())


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
