"""A service of a compose file and a container of a pod, with real containers beside them; all are gone at the end."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from planted_images import PYTHON, python_image
from test_own_line_here import PLAIN, Run, called, containers, tare

from tare.records.store import Store

__all__ = ["tare"]
pytestmark = pytest.mark.machine("docker", "root")
# Asks the other container in each step; on bare metal there is none.
ASKS = """\
import os, socket, sys
from tare_inside import marks
inside = os.path.exists("/of_the_image")
if inside:
    assert open("/shared/seed").read() == "sown" if os.path.isdir("/shared") else True
    assert os.environ["GIVEN"] == "a $ sign", os.environ["GIVEN"]
for step in range(6):
    marks.begin("step", step)
    if inside:
        with socket.create_connection((sys.argv[1], 8765), timeout=20) as asked:
            assert asked.recv(9) == b"answer"
    sum(range(200_000))
    marks.end("step", step)
"""
SERVES = """\
import socket
with socket.create_server(("0.0.0.0", 8765)) as serving:
    while True:
        with serving.accept()[0] as asked:
            asked.sendall(b"answer")
"""
# What Docker Compose's own plugin would say of the file: the test's machines have no such plugin.
PLUGIN = """\
#!/bin/sh
case "$*" in
*docker-cli-plugin-metadata*) echo '{"SchemaVersion":"0.1.0","Vendor":"test","Version":"2"}';;
*config*) cat %s;;
*) echo v2;;
esac
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, name = tmp_path_factory.mktemp("specs"), f"localhost/tare/specs:{os.getpid()}"
    root = python_image(folder / "root")
    (root / "of_the_image").touch()
    called("tar", "-C", str(root), "-cf", str(folder / "image.tar"), ".")
    called("docker", "import", str(folder / "image.tar"), name)
    yield name
    subprocess.run(["docker", "rmi", "--force", name], capture_output=True, check=False)


def left(image: str) -> list[str]:
    """Containers and networks of ours that are still there."""
    networks = called("docker", "network", "ls", "--quiet", "--filter=label=tare.run").split()
    return [*containers("docker", image), *networks]


def test_a_service_runs_with_those_that_it_depends_on(
    image: str, tare: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asks.py").write_text(ASKS)
    (tmp_path / "serves.py").write_text(SERVES)
    mount = {"type": "bind", "source": str(tmp_path), "target": "/work", "read_only": True}
    connects = f"{PYTHON} -c \"import socket; socket.create_connection(('127.0.0.1', 8765))\""
    config = {"name": "shop", "services": {
        "app": {"image": image, "entrypoint": [PYTHON], "command": ["/work/asks.py", "db"], "volumes": [mount],
                "environment": {"GIVEN": "a $$ sign"}, "container_name": "taken", "ports": [{"target": 1}],
                "restart": "always", "links": ["db"],
                "depends_on": {"db": {"condition": "service_healthy", "required": True}}},
        "db": {"image": image, "entrypoint": [PYTHON], "command": ["/work/serves.py"], "volumes": [mount],
               "restart": "always", "healthcheck": {"test": ["CMD-SHELL", connects], "interval": "1s"}},
    }}  # fmt: skip
    (tmp_path / "compose.yaml").write_text("services: {}\n")
    (tmp_path / "config.json").write_text(json.dumps(config))
    plugin = tmp_path / "docker" / "cli-plugins" / "docker-compose"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(PLUGIN % (tmp_path / "config.json"))
    plugin.chmod(0o755)
    monkeypatch.setitem(PLAIN, "DOCKER_CONFIG", str(tmp_path / "docker"))
    done = tare("weigh", "--blocks", "1", "-o", "out", "--compose", "compose.yaml", "app")

    said = " ".join(done.stderr.split())
    assert done.returncode == 0, done.stderr[-3000:]
    assert "beside it: db, until it is healthy" in said and "not honoured of app: services.app.links." in said
    records = Store.open(tmp_path / "out").records()
    assert {(each.settings["platform"], each.state in ("ok", "suspect")) for each in records} == {
        ("bare", True), ("own", True),
    }  # fmt: skip
    assert left(image) == []


def test_a_container_of_a_pod_runs_with_its_sidecar_after_what_goes_first(
    image: str, tare: Run, tmp_path: Path
) -> None:
    (tmp_path / "asks.py").write_text(ASKS)
    (tmp_path / "serves.py").write_text(SERVES)
    mounts = [{"name": "work", "mountPath": "/work", "readOnly": True}, {"name": "shared", "mountPath": "/shared"}]
    sows = "open('/shared/seed', 'x').write('sown')"
    pod = {"kind": "Pod", "spec": {
        "volumes": [{"name": "work", "hostPath": {"path": str(tmp_path)}}, {"name": "shared", "emptyDir": {}}],
        "initContainers": [
            {"name": "sow", "image": image, "command": [PYTHON, "-c", sows], "volumeMounts": mounts},
            {"name": "side", "image": image, "command": [PYTHON, "/work/serves.py"], "volumeMounts": mounts,
             "restartPolicy": "Always"}],
        "containers": [
            {"name": "app", "image": image, "command": [PYTHON, "/work/asks.py", "127.0.0.1"], "volumeMounts": mounts,
             "env": [{"name": "GIVEN", "value": "a $ sign"}]}],
        "nodeSelector": {"disk": "fast"},
    }}  # fmt: skip
    (tmp_path / "pod.yaml").write_text(json.dumps(pod))
    done = tare("weigh", "--blocks", "1", "-o", "out", "--pod", "pod.yaml")

    assert done.returncode == 0, done.stderr[-3000:]
    assert "not looked at: the node" in " ".join(done.stderr.split()) and "spec.nodeSelector" in done.stderr
    records = Store.open(tmp_path / "out").records()
    assert {each.state in ("ok", "suspect") for each in records if each.settings["platform"] == "own"} == {True}
    assert left(image) == []


def test_a_compose_file_without_compose_is_refused_with_what_to_do(tare: Run, tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services: {app: {image: a}}\n")
    done = tare("why", "--compose", "compose.yaml", "app")

    assert done.returncode == 2 and "Docker Compose is not installed" in done.stderr
