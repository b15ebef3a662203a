"""A pretend Docker engine: the calls of the SDK's client that the docker platform makes, on a `SmallLinux`."""

from __future__ import annotations

import socket
import struct
from typing import Any

from docker.errors import APIError, ImageNotFound, NotFound

from small_linux import SmallLinux


def frame(stream: int, data: bytes) -> bytes:
    """One piece of output as the engine sends it."""
    return struct.pack(">BxxxL", stream, len(data)) + data


class PretendEngine:
    """Client and low-level client in one; `api` is itself."""

    def __init__(self, host: SmallLinux, *, driver: str = "cgroupfs") -> None:
        self.host = host
        self.driver = driver
        self.runtimes = ["runc"]
        self.api = self
        self.closed = 0
        self.images: dict[str, dict[str, Any]] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.running: dict[str, int] = {}
        self.execs: list[dict[str, Any]] = []
        self.answers: list[bytes] = []  # what the next commands print, as frames
        self.codes: list[int] = []
        self.built: list[dict[str, Any]] = []
        self.build_says: list[dict[str, str]] = [{"stream": "ok"}]

    def _step(self, what: str) -> None:
        self.host.log.append(f"docker {what}")
        if self.host._broken():
            raise APIError(f"{what}: it broke")

    # images

    def inspect_image(self, name: str) -> dict[str, Any]:
        self._step("inspect_image")
        if name not in self.images:
            raise ImageNotFound(name)
        return self.images[name]

    def import_image_from_data(self, data: bytes, repository: str, tag: str) -> None:
        self._step("import")
        self.images[f"{repository}:{tag}"] = {"Id": f"sha256:{tag}", "Config": {"Env": None}, "data": data}

    def build(self, **asked: Any) -> list[dict[str, str]]:
        self._step("build")
        self.built.append(asked)
        if not any("error" in step for step in self.build_says):
            self.images[asked["tag"]] = {"Id": "sha256:built", "Config": {"Env": None}}
            self.images["sha256:built"] = self.images[asked["tag"]]
        return self.build_says

    # containers

    def info(self) -> dict[str, Any]:
        self._step("info")
        return {"CgroupDriver": self.driver, "Runtimes": {name: {} for name in self.runtimes}}

    def create_container_from_config(self, config: dict[str, Any], name: str) -> dict[str, str]:
        self._step("create")
        self.configs[name] = config
        return {"Id": name}

    def start(self, container: str) -> None:
        self._step("start")
        self.running[container] = self.host._container(f"/tare/{container}")

    def inspect_container(self, container: str) -> dict[str, Any]:
        self._step("inspect")
        return {"State": {"Pid": self.running.get(container, 0)}}

    def containers(self, *, all: bool, filters: dict[str, str]) -> list[dict[str, str]]:
        self._step("list")
        label, _, value = filters["label"].partition("=")
        return [{"Id": name} for name, config in self.configs.items() if config.get("Labels", {}).get(label) == value]

    def remove_container(self, container: str, *, force: bool, v: bool) -> None:
        self._step("remove")
        if container not in self.configs:
            raise NotFound(container)
        del self.configs[container]
        self.kill(container)

    def kill(self, container: str) -> None:
        if (pid := self.running.pop(container, None)) is not None:
            self.host._end_container(pid)

    def close(self) -> None:
        self.closed += 1

    # commands inside

    def exec_create(self, container: str, cmd: list[str], **asked: Any) -> dict[str, str]:
        self._step("exec_create")
        self.execs.append({"container": container, "cmd": cmd, **asked})
        return {"Id": str(len(self.execs) - 1)}

    def exec_start(self, number: str, *, socket: bool) -> Any:
        ours, theirs = _pair()
        theirs.sendall(self.answers.pop(0) if self.answers else b"")
        theirs.close()
        return ours

    def exec_inspect(self, number: str) -> dict[str, Any]:
        code = self.codes[0] if self.codes else 0
        return {"Running": False, "ExitCode": code, "Pid": 0}


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()
