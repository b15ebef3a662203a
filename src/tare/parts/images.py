"""Images in a Docker engine: the skeleton that the host's root is bound onto, a Dockerfile's, the user's own."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tare.errors import ObstacleError, TrialError
from tare.parts.engine import errors
from tare.parts.hostroot import OWN, Top

_SKELETON = "tare/skeleton"
_BUILT = "tare/built"


def skeleton_tar(tops: Iterable[Top]) -> bytes:
    """A few empty folders and links with the names of the host's: the same bytes for the same names."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for top in (*tops, *(Top(name) for name in OWN)):
            entry = tarfile.TarInfo(top.name)
            entry.type = tarfile.SYMTYPE if top.link else tarfile.DIRTYPE
            entry.linkname = top.link
            entry.mode = 0o1777 if top.name == "tmp" else 0o755
            tar.addfile(entry)
    return data.getvalue()


def skeleton(client: Any, tops: Iterable[Top]) -> str:
    """The id of the skeleton image; made once an engine."""
    data = skeleton_tar(tops)
    tag = hashlib.sha256(data).hexdigest()[:16]
    with errors("make the skeleton image"):
        if (known := _id(client, f"{_SKELETON}:{tag}")) is None:
            client.api.import_image_from_data(data, repository=_SKELETON, tag=tag)
            known = _id(client, f"{_SKELETON}:{tag}")
    if known is None:
        raise TrialError("the Docker engine took the skeleton image but does not have it.")
    return known


def _id(client: Any, name: str) -> str | None:
    from docker.errors import ImageNotFound

    try:
        return str(client.api.inspect_image(name)["Id"])
    except ImageNotFound:
        return None


def missing(client: Any, name: str) -> bool:
    """Whether the engine does not have this image."""
    with errors(f"look for the image {name}"):
        return _id(client, name) is None


def pinned(client: Any, name: str) -> str:
    """The id behind a name now. The container is made from the id: a tag may move between two trials."""
    with errors(f"look for the image {name}"):
        known = _id(client, name)
    if known is None:
        raise ObstacleError(f"the engine has no image {name}; `docker pull {name}` brings it. tare fetches nothing.")
    return known


def environment(client: Any, image: str) -> dict[str, str]:
    """The variables that an image sets for whatever runs in it."""
    with errors("look into the image"):
        listed = client.api.inspect_image(image)["Config"]["Env"] or []
    return dict(entry.partition("=")[::2] for entry in listed)


def built(client: Any, dockerfile: Path) -> str:
    """The id of the image that a Dockerfile describes; built without a network, and again only when a file changed."""
    tag = f"{_BUILT}:{_context_hash(dockerfile)}"
    with errors(f"build {dockerfile}"):
        if (known := _id(client, tag)) is not None:
            return known
        _build(client, dockerfile, tag)
        known = _id(client, tag)
    if known is None:
        raise TrialError(f"{dockerfile} was built, but the engine does not have {tag}.")
    return known


def _build(client: Any, dockerfile: Path, tag: str) -> None:
    said: list[str] = []
    steps = client.api.build(
        path=str(dockerfile.parent.resolve()),
        dockerfile=dockerfile.name,
        tag=tag,
        network_mode="none",
        rm=True,
        forcerm=True,
        decode=True,
    )
    for step in steps:
        said.append(step.get("stream", ""))
        if "error" in step:
            tail = "".join(said)[-1500:].strip()
            raise ObstacleError(
                f"{dockerfile} cannot be built (there is no network in a build): {step['error']}\n{tail}"
            )


def _context_hash(dockerfile: Path) -> str:
    """Changes when the Dockerfile or any file beside it does."""
    digest = hashlib.sha256(dockerfile.read_bytes())
    for line in _context_lines(dockerfile.parent):
        digest.update(line.encode())
    return digest.hexdigest()[:16]


def _context_lines(context: Path) -> Iterator[str]:
    for path in sorted(context.rglob("*")):
        seen = path.lstat()
        yield f"{path.relative_to(context)}\0{seen.st_mode}\0{seen.st_size}\0{seen.st_mtime_ns}\n"
