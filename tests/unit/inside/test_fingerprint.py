from __future__ import annotations

import compileall
import json
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tare_inside import around, fingerprint, launch


def test_torch_says_version_build_threads_and_paths() -> None:
    said = fingerprint.gather()["torch"]

    assert said["version"] == torch.__version__
    assert said["threads"] == torch.get_num_threads()
    assert said["interop_threads"] == torch.get_num_interop_threads()
    assert said["optimiser"] in ("for-loop", "foreach", "fused")
    assert {"git", "parallel", "blas", "build", "mkldnn"} <= said.keys()


def test_the_libraries_that_do_the_work_are_told_apart_by_content() -> None:
    found = fingerprint.gather()["libraries"]

    assert {"libtorch_cpu.so", "libc10.so", "libc.so.6"} <= found.keys()
    assert len(set(found.values())) == len(found)
    assert not any(name.startswith(("libcrypto", "libmagic", "libcap")) for name in found)


def test_a_library_of_the_same_size_and_other_content_has_another_digest(tmp_path: Path) -> None:
    size = 3 << 20
    for name, byte, at in (("first", b"a", 5), ("last", b"b", size - 5), ("same", b"\0", 5)):
        data = bytearray(size)
        data[at : at + 1] = byte
        (tmp_path / name).write_bytes(data)
    plain = tmp_path / "plain"
    plain.write_bytes(bytes(size))
    digests = {path.name: around.digest(str(path)) for path in tmp_path.iterdir()}

    assert digests["same"] == digests["plain"]
    assert len({digests["plain"], digests["first"], digests["last"]}) == 3


def test_only_variables_that_matter_are_said_and_never_a_secret() -> None:
    environ = {
        "OMP_NUM_THREADS": "2",
        "MALLOC_TOP_PAD_": "1",
        "LD_PRELOAD": "libx.so",
        "CUDA_VISIBLE_DEVICES": "0",
        "TORCH_API_TOKEN": "hush",
        "CUDA_SECRET": "hush",
        "PYTORCH_AUTH_COOKIE": "hush",
        "HOME": "/root",
    }

    assert launch.environment(environ) == {
        "CUDA_VISIBLE_DEVICES": "0",
        "LD_PRELOAD": "libx.so",
        "MALLOC_TOP_PAD_": "1",
        "OMP_NUM_THREADS": "2",
    }


def test_what_the_kernel_says_of_the_process_is_kept_as_it_is() -> None:
    text = "Name:\tpython\nCapEff:\t00000000a80425fb\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"

    assert launch.process_status(text) == {"CapEff": "00000000a80425fb", "NoNewPrivs": "1", "Seccomp": "2"}
    assert "Cpus_allowed_list" in fingerprint.gather()["process"]


def memory_limit(folders: dict[str, list[str]]) -> int | None:
    return launch._bytes(folders, "memory.max", "memory.limit_in_bytes")


def test_quota_and_memory_limit_are_cores_and_bytes_and_unlimited_is_absent(tmp_path: Path) -> None:
    def limits(**files: str) -> dict[str, object]:
        for name, text in files.items():
            (tmp_path / name.replace("__", ".")).write_text(text)
        folders = {"": [str(tmp_path)]}
        found = {**launch._cpu_quota(folders), "memory": memory_limit(folders)}
        return {name: value for name, value in found.items() if value is not None}

    assert limits() == {}
    assert limits(cpu__max="max 100000\n", memory__max="max\n") == {}
    assert limits(cpu__max="150000 100000\n", memory__max="1073741824\n") == {"cpu_quota_cores": 1.5, "memory": 1 << 30}
    assert limits(cpu__max="5000 10000\n", memory__max="max\n") == {"cpu_quota_cores": 0.5, "cpu_period_s": 0.01}


def test_the_old_cgroups_are_understood_too(tmp_path: Path) -> None:
    (tmp_path / "cpu.cfs_quota_us").write_text("50000\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "memory.limit_in_bytes").write_text("9223372036854771712\n")

    assert launch._cpu_quota({"cpu": [str(tmp_path)]}) == {"cpu_quota_cores": 0.5}
    assert memory_limit({"memory": [str(tmp_path)]}) is None
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")
    assert launch._cpu_quota({"cpu": [str(tmp_path)]}) == {}


def test_a_broken_torch_and_no_numpy_leave_the_rest_standing(tmp_path: Path) -> None:
    for name in ("torch", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise OSError('libtorch.so: cannot open shared object file')")
    done = subprocess.run(
        [sys.executable, str(fingerprint.__file__)],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(done.stdout)

    assert "torch" not in said
    assert "numpy" not in said
    assert said["python"]["version"] == platform.python_version()
    assert said["machine"] == platform.machine()
    assert said["libc"].startswith("glibc")
    assert said["limits"]["nofile"][0] > 0


MOUNTS = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:26 / /tmp rw,nosuid shared:9 master:2 - tmpfs tmpfs rw
31 22 0:40 / /data rw - xfs /dev/sdb rw
32 31 0:41 / /data rw - overlay overlay rw
33 22 0:42 / /tmpfoo rw - btrfs none rw
not a mount
"""


def test_the_file_system_under_a_folder_is_that_of_the_deepest_mount_and_of_the_last_on_it():
    folders = {"tmp": "/tmp/x", "work": "/data/train", "other": "/home", "near": "/tmpfoo", "root": "/"}
    assert launch.file_systems(MOUNTS, folders) == {
        "tmp": "tmpfs", "work": "overlay", "other": "ext4", "near": "btrfs",
    }  # fmt: skip
    assert launch.file_systems("", folders) == {}
    assert "tmp" in fingerprint.gather()["file_system"]


def asked(call: str, *folders: Path) -> dict[str, Any]:
    """What a fresh interpreter that searches these folders says."""
    script = f"import json, sys; from tare_inside import around; print(json.dumps(around.{call}))"
    path = ":".join(map(str, (*folders, Path(fingerprint.HERE).parent)))
    done = subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": path}, capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_runs_before_every_program_is_told_by_its_content(tmp_path: Path) -> None:
    customize, pth = tmp_path / "usercustomize.py", tmp_path / "more.pth"
    before = asked("start_up_files(sys.path)", tmp_path)["files"]
    customize.write_text("a = 1\n")
    pth.write_text("/some/folder\n")
    one = asked("start_up_files(sys.path)", tmp_path)["files"]
    customize.write_text("a = 2\n")
    pth.write_text("/some/folder\nimport os\n")
    other = asked("start_up_files(sys.path)", tmp_path)["files"]

    assert str(customize) not in before and one[str(customize)] != other[str(customize)]
    assert str(pth) not in one and str(pth) in other  # one that only names a folder runs nothing


def test_modules_without_a_compiled_file_and_compiled_extensions_are_told(tmp_path: Path) -> None:
    for name in ("early", "late", "never"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "table.so").write_bytes(b"")
    (tmp_path / "early" / "_speedups.cpython-312-x86_64-linux-gnu.so").write_bytes(b"")
    compileall.compile_dir(str(tmp_path / "early"), quiet=2)
    time.sleep(0.05)
    work = tmp_path / "work" / "tare_inside"
    shutil.copytree(Path(fingerprint.HERE), work)
    time.sleep(0.05)
    compileall.compile_dir(str(tmp_path / "late"), quiet=2)  # as an import of the program does it
    script = "import json, tare_inside.fingerprint as f; f.INSIDE = %r; print(json.dumps(f.modules_on_disk()))"
    done = subprocess.run(
        [sys.executable, "-c", script % str(work.parent)],
        env={"PYTHONPATH": f"{tmp_path}:{work.parent}"}, capture_output=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)

    assert found["uncompiled"][str(tmp_path)] == ["late", "never"]
    assert "early/_speedups" in found["extensions"]
    assert not [name for name in found["extensions"] if name.startswith("data")], "no folder of data is walked"
    assert {"early", "late", "never"} <= set(found["names"])


def test_modules_on_disk_are_listed_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(fingerprint.MODULES, raising=False)
    assert "modules" not in fingerprint.gather()
    monkeypatch.setenv(fingerprint.MODULES, "1")
    assert fingerprint.gather()["modules"]["looked"]
