"""An image that is not here is fetched from a registry: a small one on the loopback, by the real engines."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import secrets
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import warm_tare

from tare.base.errors import ObstacleError
from tare.drivers.containers.pulling import fetch
from tare.drivers.containers.unpacked import unpacked

OCI = "application/vnd.oci.image"
ENGINES = [pytest.param(name, marks=pytest.mark.machine(name, "root")) for name in ("docker", "podman")]


@dataclass
class Registry:
    """What an OCI distribution server answers: manifests by tag or digest, and blobs."""

    address: str
    name: str
    tags: dict[str, str] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def put(self, data: bytes, kind: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.blobs[digest] = data
        return {"mediaType": kind, "digest": digest, "size": len(data)}

    def answer(self, path: str) -> tuple[str, str, bytes] | None:
        """The media type, the digest and the bytes."""
        self.asked.append(path)
        prefix = f"/v2/{self.name}/"
        kind, _, wanted = path.removeprefix(prefix).partition("/")
        digest = self.tags.get(wanted, wanted)
        if not path.startswith(prefix) or digest not in self.blobs:
            return None
        is_manifest = kind == "manifests"
        return f"{OCI}.manifest.v1+json" if is_manifest else "application/octet-stream", digest, self.blobs[digest]


def image_in(registry: Registry, content: str) -> None:
    """One layer with a file of its own, and busybox where there is one, under the tag 1."""
    data = io.BytesIO()
    files = {"app/marker": content.encode()}
    busybox = shutil.which("busybox")
    if busybox:
        files |= {f"bin/{name}": Path(busybox).read_bytes() for name in ("sh", "sleep", "cat")}
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, blob in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(blob), 0o755
            tar.addfile(entry, io.BytesIO(blob))
    layer = registry.put(gzip.compress(data.getvalue()), f"{OCI}.layer.v1.tar+gzip")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(data.getvalue()).hexdigest()}"]}
    about = {"architecture": machine, "os": "linux", "config": {"WorkingDir": "/app"}, "rootfs": rootfs}
    config = registry.put(json.dumps(about).encode(), f"{OCI}.config.v1+json")
    kind = f"{OCI}.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer]}
    registry.tags["1"] = registry.put(json.dumps(manifest).encode(), kind)["digest"]


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = ("application/json", "", b"{}") if self.path.rstrip("/") == "/v2" else made.answer(self.path)
            kind, digest, body = found or ("application/json", "", b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')
            self.send_response(200 if found else 404)
            for name, value in (("Content-Type", kind), ("Docker-Content-Digest", digest)):
                if value:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    address = f"127.0.0.1:{server.server_address[1]}"
    made = Registry(address, f"app-{secrets.token_hex(3)}")
    image_in(made, made.name)
    settings = tmp_path / "registries.conf"  # Docker permits the loopback by itself
    settings.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(settings))
    monkeypatch.setenv("TARE_STATE", str(tmp_path / "state"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()
    for engine in ("docker", "podman"):
        if shutil.which(engine):
            subprocess.run([engine, "rmi", "--force", f"{address}/{made.name}:1"], capture_output=True, check=False)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_image_that_is_not_here_is_fetched_once_and_can_be_used(engine, registry):
    name, said = f"{registry.address}/{registry.name}:1", []

    fetch(engine, name, said.append)

    assert said[0] == f"{engine} has no image {name}: fetching it ..."
    assert said[-1].startswith(f"fetched {name} in ")
    image = unpacked(name)
    assert (image.root / "app/marker").read_text() == registry.name
    assert image.config.folder == "/app"
    registry.asked.clear()
    fetch(engine, name, said.append)
    assert registry.asked == []  # it is here now
    assert said[-1].startswith("fetched")


@pytest.mark.parametrize("engine", ENGINES)
def test_an_image_that_cannot_be_fetched_is_an_obstacle_with_the_reason_and_a_way_out(engine, registry):
    name = f"{registry.address}/{registry.name}:no-such-tag"

    with pytest.raises(ObstacleError) as raised:
        fetch(engine, name, lambda _: None)

    (found,) = raised.value.obstacles
    assert found.code == "needs.image"
    assert f"`{engine} pull {name}` failed: " in found.sentence
    assert "unknown" in found.sentence
    assert f"{engine} login" in found.sentence


@pytest.mark.machine("docker", "root", "busybox")
def test_a_fetched_image_is_weighed_with_the_code_that_is_in_it(registry, tmp_path):
    name = f"{registry.address}/{registry.name}:1"
    words = ("weigh", "--in", "docker", "--blocks", "1", "--image", name, "-o", "store")
    done = warm_tare.run(*words, "--", "/bin/cat", "/app/marker", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "the command gets the image's variables" in done.stderr
    assert f"fetched {name} in " in done.stderr
    assert "the same bytes on both sides" in done.stderr
    printed = {path.read_text() for path in (tmp_path / "store" / "trials").glob("*/out.txt")}
    assert printed == {registry.name}
    sides = [json.loads(path.read_text()) for path in (tmp_path / "store" / "trials").glob("*/record.json")]
    assert {side["settings"]["platform"] for side in sides} == {"bare", "docker"}
    assert done.stdout.startswith("Cannot tell whether docker is slower or faster than bare")
