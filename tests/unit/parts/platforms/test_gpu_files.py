"""A GPU in a container: its device files, and for an image NVIDIA's runtime."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from small_linux import SmallLinux
from tare.base.errors import TrialError
from tare.base.host import LocalHost, Site
from tare.drivers.containers import client, engine
from tare.drivers.nvidia import GpuFile, gpu_files
from tare.parts.platforms.docker import Docker
from tare.parts.platforms.gvisor import Gvisor
from tare.parts.platforms.podman import Podman
from tare.parts.platforms.runc import Runc

SITE = Site(name="tare-1", scratch=Path("/scratch"))
SERVER = "/dev/nvidiactl c3 ff\n/dev/nvidia0 c3 0\n/dev/nvidia-uvm 1fb 0\n"


@pytest.fixture
def server() -> SmallLinux:
    return SmallLinux(gpu_files=SERVER)


@pytest.fixture(autouse=True)
def _answers(server: SmallLinux, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine answers, and has an image."""
    server.images["pt:1"] = server.images["sha256:77"] = {"Id": "sha256:77", "Config": {"Env": ["PATH=/bin"]}}
    monkeypatch.setattr(engine, "connect", lambda host: client.docker(host, "/var/run/docker.sock"))
    monkeypatch.setattr(engine, "candidates", lambda: ["/var/run/docker.sock"])
    monkeypatch.setattr(engine, "find", lambda: engine.Engine("/var/run/docker.sock", ours=False))
    monkeypatch.setattr("tare.drivers.containers.place.ContainerPlace.find_python", lambda place, python, needed: None)


def bundle_of(linux: SmallLinux) -> dict[str, dict[str, list[object]]]:
    config = json.loads(next(text for path, text in linux.files.items() if path.endswith("config.json")))
    linux_part: dict[str, dict[str, list[object]]] = config["linux"]
    return linux_part


def test_the_numbers_of_a_device_file_are_read_as_stat_writes_them(server):
    assert gpu_files(server) == [
        GpuFile("/dev/nvidia-uvm", 507, 0),
        GpuFile("/dev/nvidia0", 195, 0),
        GpuFile("/dev/nvidiactl", 195, 255),
    ]


def test_the_script_that_lists_them_runs_and_finds_none_or_only_such_files():
    assert all(file.path.startswith("/dev/nv") for file in gpu_files(LocalHost()))


def test_runc_makes_the_files_inside_and_allows_nothing_else(server):
    place = Runc().open(server, SITE)

    made = bundle_of(server)
    assert [device["path"] for device in made["devices"]] == ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"]
    first, *allowed = made["resources"]["devices"]
    assert first == {"allow": False, "access": "rwm"}
    assert [(rule["major"], rule["minor"]) for rule in allowed] == [(507, 0), (195, 0), (195, 255)]
    assert place.facts["gpu_files"] == 3


def test_a_container_that_shall_have_no_gpu_has_none(server):
    Runc(gpu=False).open(server, SITE)

    assert bundle_of(server)["devices"] == []
    assert len(bundle_of(server)["resources"]["devices"]) == 1


@pytest.mark.parametrize("platform", [Runc(gpu=True), Podman(gpu=True)])
def test_a_gpu_that_is_not_there_is_an_obstacle_if_it_was_asked_for(platform, server):
    assert not [text for text in map(str, platform.obstacles(server)) if "gpu: true" in text]
    assert [text for text in map(str, platform.obstacles(SmallLinux())) if "gpu: true" in text]


def test_gvisor_says_that_it_hands_none_on(server):
    assert any("gVisor" in text for text in map(str, Gvisor(gpu=True).obstacles(server)))
    assert not any("gVisor" in text for text in map(str, Gvisor().obstacles(server)))


def test_podman_gets_them_by_name(server):
    Podman().open(server, SITE)

    create = next(asked for asked in server.asked if "create" in asked)
    assert [word for word in create if word.startswith("--device=")] == [
        "--device=/dev/nvidia-uvm", "--device=/dev/nvidia0", "--device=/dev/nvidiactl",
    ]  # fmt: skip


def test_docker_with_the_hosts_root_needs_no_runtime_of_nvidias(server):
    place = Docker().open(server, SITE)

    made = server.docker["tare-1"]["words"]
    assert [word for word in made if word.startswith("--device=")] == [
        "--device=/dev/nvidia-uvm", "--device=/dev/nvidia0", "--device=/dev/nvidiactl",
    ]  # fmt: skip
    assert "--runtime=nvidia" not in made
    assert place.facts["gpu_files"] == 3


def test_docker_with_an_image_takes_nvidias_runtime_where_the_engine_has_it(server):
    server.docker_info["Runtimes"]["nvidia"] = {}

    Docker(image="pt:1").open(server, SITE)

    assert {"--runtime=nvidia", "--env=NVIDIA_VISIBLE_DEVICES=all"} <= set(server.docker["tare-1"]["words"])


def test_docker_with_an_image_and_no_such_runtime_says_what_to_install(server):
    Docker(image="pt:1").open(server, SITE)  # nobody asked for the GPU

    with pytest.raises(TrialError, match="nvidia-container-toolkit"):
        Docker(image="pt:1", gpu=True).open(server, Site(name="tare-2", scratch=Path("/scratch")))


def test_a_machine_without_a_gpu_gives_containers_as_before(server):
    server.gpu_files = ""

    Docker().open(server, SITE)

    made = server.docker["tare-1"]["words"]
    assert not [word for word in made if word.startswith(("--device=", "--env=NVIDIA"))]
