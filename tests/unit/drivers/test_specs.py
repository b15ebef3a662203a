"""A service of a compose file and a pod as `docker run` lines: every key is an option, or is named as left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tare.base.errors import StudyError
from tare.base.host import Completed
from tare.drivers.containers import specs


def config(**service: Any) -> dict[str, Any]:
    """As `docker compose config --format json` has it."""
    return {
        "name": "shop",
        "services": {
            "app": {"image": "app:1", "networks": {"default": None}, **service},
            "db": {"image": "db:1", "depends_on": {"seed": {"condition": "service_completed_successfully"}}},
            "seed": {"image": "seed:1", "command": ["load"]},
        },
        "volumes": {"data": {"name": "shop_data"}, "outside": {"external": True}, "new": {}},
        "secrets": {"key": {"file": "/etc/key"}, "hidden": {"environment": "HIDDEN"}},
    }


def line(**service: Any) -> tuple[list[str], tuple[str, ...]]:
    """The words behind `docker run`, and what is left out."""
    made = specs.compose(config(**service), "app", {"shop_data", "outside"}.__contains__).main
    assert made.words[:2] == ("docker", "run")
    return list(made.words[2:]), made.left_out


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ({"cpus": 0.5, "mem_limit": "67108864"}, ["--cpus=0.5", "--memory=67108864", "app:1"]),
        ({"environment": {"A": "1", "B": None}}, ["--env=A=1", "--env=B", "app:1"]),
        (
            {"ulimits": {"nofile": {"soft": 20000, "hard": 40000}, "nproc": 65535}},
            ["--ulimit=nofile=20000:40000", "--ulimit=nproc=65535", "app:1"],
        ),
        (
            {"deploy": {"replicas": 6, "resources": {"limits": {"cpus": 0.001, "memory": "52428800", "pids": 9}}}},
            ["--cpus=0.001", "--memory=52428800", "--pids-limit=9", "app:1"],
        ),
        ({"entrypoint": ["/e.sh", "-p", "3000"], "command": ["x"]}, ["--entrypoint=/e.sh", "app:1", "-p", "3000", "x"]),
        (
            {"healthcheck": {"test": ["CMD", "curl", "a b"], "interval": "10s", "retries": 5}},
            ["--health-cmd=curl 'a b'", "--health-interval=10s", "--health-retries=5", "app:1"],
        ),
        ({"healthcheck": {"disable": True}}, ["--no-healthcheck", "app:1"]),
        (
            {"logging": {"driver": "syslog", "options": {"mode": "non-blocking"}}},
            ["--log-driver=syslog", "--log-opt=mode=non-blocking", "app:1"],
        ),
        (
            {"volumes": [
                {"type": "bind", "source": "/a", "target": "/b", "read_only": True, "bind": {"create_host_path": True}},
                {"type": "volume", "source": "data", "target": "/d", "volume": {}},
                {"type": "volume", "source": "outside", "target": "/o", "volume": {}},
                {"type": "volume", "source": "new", "target": "/n", "volume": {}},
                {"type": "volume", "target": "/u", "volume": {}},
                {"type": "tmpfs", "target": "/t", "tmpfs": {"size": "10000"}},
            ]},
            ["--volume=/a:/b:ro", "--volume=shop_data:/d", "--volume=outside:/o", "--volume=/n", "--volume=/u",
             "--tmpfs=/t:size=10000", "app:1"],
        ),
        ({"secrets": [{"source": "key"}]}, ["--volume=/etc/key:/run/secrets/key:ro", "app:1"]),
        ({"privileged": True, "read_only": False, "cap_drop": ["ALL"]}, ["--privileged", "--cap-drop=ALL", "app:1"]),
        ({"gpus": "all"}, ["--gpus=all", "app:1"]),
        (
            {"deploy": {"resources": {"reservations": {"devices": [
                {"driver": "nvidia", "device_ids": ["0", "3"], "capabilities": ["gpu"]}]}}}},
            ['--gpus="device=0,3"', "app:1"],
        ),
        ({"blkio_config": {"device_read_bps": [{"path": "/dev/sda", "rate": 12}]}},
         ["--device-read-bps=/dev/sda:12", "app:1"]),
        ({"image": None, "build": {"context": "/src"}}, ["shop-app"]),
    ],
)  # fmt: skip
def test_a_service_is_a_line(service: dict[str, Any], expected: list[str]) -> None:
    words, left_out = line(**service)

    assert (words, left_out) == (expected, ())


def test_what_no_option_says_is_named_by_its_key() -> None:
    _, left_out = line(credential_spec={"file": "a"}, links=["db"], secrets=[{"source": "hidden"}], **{"x-own": 1})

    assert left_out == ("services.app.secrets.hidden", "services.app.credential_spec", "services.app.links")


def test_those_that_it_depends_on_come_first_with_what_is_waited_for() -> None:
    depends = {"db": {"condition": "service_healthy", "required": True}, "absent": {"required": False}}
    made = specs.compose(config(depends_on=depends), "app", lambda name: False)

    assert [(each.name, each.wait) for each in made.beside] == [("seed", "completed"), ("db", "healthy")]
    assert made.main.keys == {} and not made.is_pod
    with pytest.raises(StudyError, match=r"no service 'web'\. Its services: app, db, seed"):
        specs.compose(config(), "web", lambda name: False)


class Answers:
    """A host with, or without, the plugin."""

    def __init__(self, *codes: int, out: str = "", err: str = "") -> None:
        self._codes, self._said = list(codes), (out, err)

    def run(self, argv: Any, **_: object) -> Completed:
        return Completed(tuple(argv), self._codes.pop(0), *self._said)


def test_what_a_compose_file_means_is_asked_of_compose_alone(tmp_path: Path) -> None:
    told: Any = Answers(0, 0, out=json.dumps({"services": {"a": {"environment": {"A": "$$HOME"}}}}))
    assert specs.configured(told, tmp_path)["services"]["a"]["environment"] == {"A": "$HOME"}
    missing: Any = Answers(1, err="docker: unknown command: docker compose")
    with pytest.raises(StudyError, match="Docker Compose is not installed on this device"):
        specs.configured(missing, tmp_path)
    wrong: Any = Answers(0, 15, 15, err="validating compose.yaml: services.app.cpu is not allowed\n")
    with pytest.raises(StudyError, match=r"docker compose refuses it: .*services\.app\.cpu is not allowed"):
        specs.configured(wrong, tmp_path)


POD = {
    "kind": "Deployment",
    "spec": {"template": {"spec": {
        "nodeSelector": {"disk": "fast"},
        "dnsConfig": {"options": [{"name": "ndots", "value": "5"}]},
        "securityContext": {"runAsUser": 1000, "fsGroup": 3, "supplementalGroups": [4000]},
        "volumes": [
            {"name": "shared", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            {"name": "host", "hostPath": {"path": "/data"}}, {"name": "settings", "configMap": {"name": "x"}},
        ],
        "initContainers": [
            {"name": "fetch", "image": "busybox", "args": ["get"]},
            {"name": "proxy", "image": "envoy", "restartPolicy": "Always", "startupProbe": {}},
        ],
        "containers": [
            {"name": "app", "image": "app:1", "command": ["run", "$(PORT)"], "args": ["$$(PORT)", "$(NOT)"],
             "env": [{"name": "PORT", "value": "80"}, {"name": "POD", "valueFrom": {"fieldRef": {}}}],
             "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "0.25"}},
             "securityContext": {"runAsGroup": 7, "seccompProfile": {"type": "RuntimeDefault"}},
             "livenessProbe": {"exec": {}},
             "volumeMounts": [
                 {"name": "shared", "mountPath": "/s"}, {"name": "memory", "mountPath": "/m"},
                 {"name": "host", "mountPath": "/h", "subPath": "x", "readOnly": True},
                 {"name": "settings", "mountPath": "/c"}]},
            {"name": "log", "image": "log:1"},
        ],
    }}},
}  # fmt: skip


def test_a_pod_is_a_line_for_each_container_with_its_sidecars_named() -> None:
    made = specs.pod([{"kind": "Service", "spec": {}}, POD], None, "/folder")

    assert list(made.main.words[2:]) == [
        "--dns-option=ndots:5", "--env=PORT=80", "--cpus=0.5", "--memory=268435456", "--cpu-shares=256",
        "--user=1000:7", "--group-add=4000", "--volume=/folder/shared:/s", "--tmpfs=/m:size=1073741824",
        "--volume=/data/x:/h:ro", "--entrypoint=run", "app:1", "80", "$(PORT)", "$(NOT)",
    ]  # fmt: skip
    assert {each.rpartition("app.")[2] for each in made.main.left_out} == {
        "env.POD", "securityContext.fsGroup", "volumeMounts.settings", "livenessProbe",
    }  # fmt: skip
    assert [(each.name, each.wait) for each in made.beside] == [
        ("fetch", "completed"), ("proxy", "started"), ("log", "started"),
    ]  # fmt: skip
    assert made.beside[2].words[2:] == (
        "--dns-option=ndots:5", "--user=1000", "--group-add=4000", "--security-opt=seccomp=unconfined", "log:1",
    )  # fmt: skip
    assert made.is_pod and "spec.nodeSelector" in made.not_looked
    assert list(specs.shared_folders(made, "/folder")) == ["/folder/shared"]
    assert specs.pod([POD], "log", "/folder").main.name == "log"
    with pytest.raises(StudyError, match=r"no container 'web'\. Its containers: app, log"):
        specs.pod([POD], "web", "/folder")


@pytest.mark.parametrize(
    ("text", "expected"), [("500m", 0.5), (2, 2.0), ("1.5", 1.5), ("512Mi", 512 << 20), ("1e9", 1e9), ("2k", 2000)]
)
def test_quantities_are_those_of_kubernetes(text: object, expected: float) -> None:
    assert specs.quantity(text) == expected
