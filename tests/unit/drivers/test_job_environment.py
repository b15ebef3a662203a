from __future__ import annotations

from pathlib import Path

import pytest

from tare.base.host import ImageConfig
from tare.drivers.places import (
    FIXED_MALLOC,
    built_in_env,
    environment_facts,
    image_env,
    launched,
    own_variables,
    users_env,
)
from tare_inside.jobs import may_pass

WORKDIR = Path("/dev/shm/tare-1-workdir")
SHELL = {
    "PATH": "/venv/bin:/usr/bin",
    "HOME": "/home/ada",
    "USER": "ada",
    "LANG": "de_DE.UTF-8",
    "PYTHONPATH": "/home/ada/lib",
    "VIRTUAL_ENV": "/venv",
    "LD_LIBRARY_PATH": "/opt/cuda/lib",
    "OMP_NUM_THREADS": "3",
    "CUDA_VISIBLE_DEVICES": "1",
    "MALLOC_ARENA_MAX": "2",
    "HF_HOME": "/models",
    "HF_TOKEN": "hush",
    "CUDA_API_KEY": "hush",
    "SSH_AUTH_SOCK": "/run/agent",
    "DISPLAY": ":0",
    "TARE_STATE": "/var/lib/tare",
}


def test_the_launcher_stands_before_the_command_and_is_not_touched_by_the_jobs_python_path() -> None:
    assert launched("/usr/bin/python3", WORKDIR, ["true"]) == (
        "/usr/bin/python3",
        "-I",
        "-S",
        "/dev/shm/tare-1-workdir/inside/tare_inside/launch.py",
        "/dev/shm/tare-1-workdir/result.json",
        "--",
        "true",
    )


def test_a_built_in_workload_gets_little_of_the_users_shell() -> None:
    assert built_in_env(WORKDIR, "fixed", SHELL) == {
        "PATH": "/venv/bin:/usr/bin",
        "HOME": "/home/ada",
        "LANG": "C.UTF-8",
        "LD_LIBRARY_PATH": "/opt/cuda/lib",
        "CUDA_VISIBLE_DEVICES": "1",
        "PYTHONPATH": "/dev/shm/tare-1-workdir/inside",
        "PYTHONDONTWRITEBYTECODE": "1",
        "ONEDNN_JIT_PROFILE": "0",
        "PYTHONHASHSEED": "0",
        "TARE_MARKS": "/dev/shm/tare-1-workdir/marks.bin",
        **FIXED_MALLOC,
    }


def test_malloc_is_left_alone_by_default_of_the_c_library() -> None:
    assert not FIXED_MALLOC.keys() & built_in_env(WORKDIR, "default", SHELL).keys()


def test_a_users_command_gets_all_of_their_variables_but_those_of_their_session_and_ours() -> None:
    env = users_env(WORKDIR, "default", attach=False, environ=SHELL)
    left_out = {"SSH_AUTH_SOCK", "DISPLAY", "TARE_STATE"}

    assert env == {
        **{name: value for name, value in SHELL.items() if name not in left_out},
        "ONEDNN_JIT_PROFILE": "0",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": "/dev/shm/tare-1-workdir/inside:/home/ada/lib",
        "TARE_MARKS": "/dev/shm/tare-1-workdir/marks.bin",
    }


def test_the_record_has_the_names_of_what_was_left_out_and_set_and_no_value() -> None:
    assert environment_facts("fixed", SHELL) == {
        "left_out": ["DISPLAY", "SSH_AUTH_SOCK", "TARE_STATE"],
        "fixed": sorted(
            {
                *FIXED_MALLOC,
                "ONEDNN_JIT_PROFILE",
                "PYTHONHASHSEED",
                "PYTHONPATH",
                "TARE_MARKS",
            }
        ),
    }
    assert "PYTHONHASHSEED" not in environment_facts("default", {**SHELL, "PYTHONHASHSEED": "7"})["fixed"]


@pytest.mark.parametrize(
    "name", ["COVERAGE_PROCESS_START", "DOCKER_BUILDKIT", "PYTEST_ADDOPTS", "PYTHONDONTWRITEBYTECODE"]
)
def test_a_variable_that_may_cost_something_arrives(name: str) -> None:
    assert users_env(WORKDIR, "default", attach=False, environ={name: "1"})[name] == "1"
    assert image_env(WORKDIR, "default", ImageConfig(env={name: "1"}), attach=False)[name] == "1"
    assert name not in users_env(WORKDIR, "default", attach=False, environ={})


def test_what_tare_sets_is_none_of_the_jobs_own_variables() -> None:
    env = users_env(WORKDIR, "default", attach=True, environ={"PYTHONPATH": "/home/ada/lib", "A": "1"})

    assert own_variables(env, WORKDIR) == {
        "A": "1", "HOME": "/", "LANG": "C.UTF-8", "ONEDNN_JIT_PROFILE": "0", "PATH": env["PATH"],
        "PYTHONHASHSEED": "0", "PYTHONPATH": "/home/ada/lib",
    }  # fmt: skip
    bare = users_env(WORKDIR, "default", attach=True, environ={})
    assert "PYTHONPATH" not in own_variables(bare, WORKDIR)


def test_a_secret_stays_on_the_device_that_has_it() -> None:
    assert [name for name in SHELL if not may_pass(name)] == [
        "HF_TOKEN", "CUDA_API_KEY", "SSH_AUTH_SOCK", "DISPLAY", "TARE_STATE",
    ]  # fmt: skip


def test_attaching_comes_first_on_the_users_python_path() -> None:
    env = users_env(WORKDIR, "fixed", attach=True, environ=SHELL)
    inside = "/dev/shm/tare-1-workdir/inside"

    assert env["PYTHONPATH"] == f"{inside}/tare_inside/inside_site:{inside}:/home/ada/lib"
    assert env["TARE_MARKS"] == "/dev/shm/tare-1-workdir/marks.bin"
    assert FIXED_MALLOC.items() <= env.items()


def test_no_empty_entry_puts_the_working_folder_on_the_python_path() -> None:
    for attach in (True, False):
        folders = users_env(WORKDIR, "default", attach=attach, environ={})["PYTHONPATH"].split(":")

        assert "" not in folders


def test_a_job_without_any_environment_of_ours_still_finds_programs() -> None:
    assert built_in_env(WORKDIR, "default", {})["PATH"].endswith("/usr/bin:/sbin:/bin")
