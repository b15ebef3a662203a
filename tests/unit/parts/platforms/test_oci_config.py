"""config.json of a bundle: plain data from plain data."""

from __future__ import annotations

from tare.base.processes import Identity
from tare.drivers.containers import oci
from tare.drivers.containers.roots import Bind
from tare.parts.platforms.runc import Runc


def bundle(runc: Runc | None = None, **changes):
    fields = {
        "name": "tare-1",
        "rootfs": "/scratch/tare-1/root",
        "user": Identity(uid=1000, gid=100, can_mount=True),
        "limits": runc or Runc(),
        "binds": [Bind("/data", "/data"), Bind("/workdir", "/workdir", writable=True)],
        "shm_bytes": 1 << 30,
    }
    return oci.Bundle(**{**fields, **changes})


def config(runc: Runc | None = None, **changes):
    return oci.bundle_config(bundle(runc, **changes))


def test_a_container_has_no_capability_no_network_and_a_read_only_root():
    made = config()

    assert made["root"] == {"path": "/scratch/tare-1/root", "readonly": True}
    assert made["process"]["noNewPrivileges"] is True
    assert all(held == [] for held in made["process"]["capabilities"].values())
    assert {each["type"] for each in made["linux"]["namespaces"]} == {"pid", "network", "ipc", "uts", "mount"}
    assert made["process"]["user"] == {"uid": 1000, "gid": 100}
    assert made["linux"]["resources"]["devices"] == [{"allow": False, "access": "rwm"}]


def test_the_control_group_lies_where_bare_metals_lies():
    assert config()["linux"]["cgroupsPath"] == "/tare/tare-1"


def test_binds_come_after_the_containers_own_folders_and_are_not_recursive():
    mounts = config()["mounts"]

    assert [mount["destination"] for mount in mounts][-2:] == ["/data", "/workdir"]
    assert mounts[-2]["options"] == ["bind", "ro", "rprivate"]
    assert mounts[-1]["options"] == ["bind", "rw", "rprivate"]


def test_shared_memory_is_as_large_as_asked():
    (shm,) = [mount for mount in config()["mounts"] if mount["destination"] == "/dev/shm"]

    assert f"size={1 << 30}" in shm["options"]


def test_limits_are_resources():
    resources = config(Runc(quota=0.5, cpuset="1", memory="64 MiB"))["linux"]["resources"]

    assert resources["cpu"] == {"quota": 50_000, "period": 100_000, "cpus": "1"}
    assert resources["memory"] == {"limit": 64 << 20, "swap": 64 << 20}
    assert "cpu" not in config()["linux"]["resources"]
    assert "memory" not in config()["linux"]["resources"]


def test_where_swap_is_not_counted_it_is_not_limited():
    resources = config(Runc(memory="64 MiB"), swap_is_counted=False)["linux"]["resources"]

    assert resources["memory"] == {"limit": 64 << 20}


def test_a_process_gets_its_environment_and_no_other():
    made = oci.process(bundle(), ["true"], {"A": "1"}, "/work")

    assert (made["args"], made["env"], made["cwd"]) == (["true"], ["A=1"], "/work")


def test_each_layer_is_a_wall_of_its_own():
    namespaces = {each["type"] for each in config(layers=["uts"])["linux"]["namespaces"]}
    open_house = config(layers=[], held=["CAP_CHOWN"])

    assert namespaces == {"mount", "uts"}
    assert "maskedPaths" not in open_house["linux"]
    assert open_house["linux"]["namespaces"] == [{"type": "mount"}]
    assert open_house["process"]["noNewPrivileges"] is False
    assert open_house["process"]["capabilities"]["effective"] == ["CAP_CHOWN"]
    assert "pids" not in open_house["linux"]["resources"]


def test_a_user_namespace_maps_each_id_to_itself():
    made = config(layers=["user"])["linux"]

    assert {"type": "user"} in made["namespaces"]
    assert made["uidMappings"] == made["gidMappings"] == [{"containerID": 0, "hostID": 0, "size": 65536}]


def test_a_filter_is_there_only_where_it_is_given():
    assert "seccomp" not in config()["linux"]
    assert config(seccomp={"defaultAction": "SCMP_ACT_ALLOW"})["linux"]["seccomp"] == {
        "defaultAction": "SCMP_ACT_ALLOW"
    }
