from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tare_inside import launch

LAUNCH = Path(launch.__file__)


def launched(result: Path, *argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(LAUNCH), str(result), "--", *argv],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


@pytest.fixture
def result(tmp_path: Path) -> Path:
    return tmp_path / "result.json"


def test_it_writes_down_what_the_command_cost(result: Path) -> None:
    before_ns = time.monotonic_ns()
    burn = "import time\nwhile time.process_time() < 0.2: pass\nkeep = bytearray(30 << 20)"
    done = launched(result, sys.executable, "-c", burn)
    after_ns = time.monotonic_ns()

    said = json.loads(result.read_text())

    assert done.returncode == said["exit"] == 0
    assert before_ns < said["start_ns"] < said["end_ns"] < after_ns
    assert said["wall_s"] == pytest.approx((said["end_ns"] - said["start_ns"]) / 1e9)
    assert said["cpu_user_s"] + said["cpu_system_s"] >= 0.2
    assert said["max_rss_bytes"] > 30 << 20
    assert said["minor_faults"] > 1000
    assert {"major_faults", "voluntary_switches", "involuntary_switches"} <= said.keys()
    assert 0 <= said["run_queue_s"] < said["wall_s"]
    assert [path.name for path in result.parent.iterdir()] == ["result.json"]


def test_a_process_that_shares_its_core_waits_for_it(result: Path) -> None:
    core = min(os.sched_getaffinity(0))
    burn = f"import os, time\nos.sched_setaffinity(0, [{core}])\nwhile time.process_time() < 0.4: pass"
    with subprocess.Popen([sys.executable, "-c", burn.replace("0.4", "9")]) as neighbour:
        try:
            launched(result, sys.executable, "-c", burn)
        finally:
            neighbour.kill()
    said = json.loads(result.read_text())

    assert said["run_queue_s"] > 0.1
    assert said["run_queue_s"] <= said["wall_s"] - said["cpu_user_s"] - said["cpu_system_s"] + 0.05


def test_what_a_child_waited_for_a_core_is_not_known_and_not_said(result: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    launched(result, "sh", "-c", '"$0" -c "$1"; true', sys.executable, burn)
    said = json.loads(result.read_text())

    assert said["cpu_user_s"] + said["cpu_system_s"] > 0.2 and "run_queue_s" not in said


def test_where_it_is_asked_to_look_it_says_what_the_innermost_process_was_at(result: Path) -> None:
    launched(result, "sh", "-c", "sleep 0.4; true", env={**os.environ, "TARE_STACKS": "1"})
    seen = json.loads(result.read_text())["sampled"]

    asleep = [seconds for name, seconds in seen.items() if name.startswith("sleep ") and not name.endswith("running")]
    assert 0.2 < sum(asleep) < 1.0


LOOPS = "while :; do :; done > /dev/null 2>&1 & exec sleep 3"


def test_another_process_of_the_trial_is_told_and_can_be_stopped_meanwhile(result: Path) -> None:
    script = result.with_name("loops.sh")
    script.write_text(LOOPS)
    env = {**os.environ, "TARE_NAME": f"tare-test-{os.getpid()}"}
    ask = "import json; from tare_inside import launch; print(json.dumps(launch.processes_beside()))"
    used = []
    for stopped in ({}, {"TARE_STOPPED": "sh/dash/bash"}):
        launched(result, "sh", str(script), env={**env, **stopped})
        asked = [sys.executable, "-c", ask]
        said = subprocess.run(
            asked, env={**env, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, check=True
        )
        used.append(sum(cpu_s for _, cpu_s in json.loads(said.stdout).values()))
        for pid in [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]:
            if f"TARE_NAME={env['TARE_NAME']}" in launch.read(f"/proc/{pid}/environ").split("\0"):
                os.kill(pid, signal.SIGKILL)

    assert used[0] > 0.1 and used[1] < used[0] / 2


def test_the_command_of_an_entry_point_is_not_stopped_with_what_has_its_name(result: Path) -> None:
    entry = 'sleep 3600 & other=$!; "$@"; code=$?; cut -d" " -f3 /proc/$other/stat; kill -9 $other; exit $code'
    env = {**os.environ, "TARE_NAME": f"tare-test-{os.getpid()}", "TARE_STOPPED": "sleep"}
    done = launched(result, "sh", "-c", entry, "entry", "sleep", "2", env=env)

    assert (done.returncode, done.stdout) == (0, "T\n")
    assert json.loads(result.read_text())["wall_s"] < 3600


def test_output_input_folder_and_environment_are_the_commands_own(result: Path, tmp_path: Path) -> None:
    show = "import os, sys; print(os.getcwd(), os.environ['MARK'], sys.stdin.read()); sys.stderr.write('bad')"
    done = launched(result, sys.executable, "-c", show, cwd=tmp_path, env={"MARK": "x"}, input="in")

    assert (done.stdout, done.stderr) == (f"{tmp_path} x in\n", "bad")


def test_the_exit_code_is_the_commands_own(result: Path) -> None:
    assert launched(result, "sh", "-c", "exit 7").returncode == 7
    assert json.loads(result.read_text())["exit"] == 7


def test_a_command_that_a_signal_ended_exits_as_in_a_shell(result: Path) -> None:
    assert launched(result, "sh", "-c", "kill -9 $$").returncode == 137
    assert json.loads(result.read_text())["exit"] == 137


def test_limits_of_processes_are_the_commands_and_not_the_launchers(result: Path) -> None:
    show = (
        "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))"
    )
    done = launched(result, sys.executable, "-c", show, env={**os.environ, "TARE_ULIMITS": "nofile=40 core=0"})

    assert (done.returncode, done.stdout) == (0, "(40, 40) (0, 0)\n")


def test_a_limit_above_what_the_place_allows_is_an_error_and_the_command_is_not_run(result: Path) -> None:
    above = {**os.environ, "TARE_ULIMITS": "nofile=4000000000"}  # the kernel's own limit, fs.nr_open, is lower
    done = launched(result, "echo", "ran", env=above)

    assert (done.returncode, done.stdout) == (126, "")
    assert "`ulimits: {nofile: 4000000000}` cannot be set" in done.stderr


def test_a_command_that_is_not_there_is_127_and_named(result: Path) -> None:
    done = launched(result, "no-such-program")

    assert done.returncode == json.loads(result.read_text())["exit"] == 127
    assert done.stderr == "tare: cannot run 'no-such-program': No such file or directory\n"


def test_a_file_that_cannot_be_run_is_126(result: Path, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("")

    assert launched(result, str(tmp_path / "data.txt")).returncode == 126


@pytest.mark.parametrize("arguments", [[], ["result.json"], ["result.json", "--"], ["result.json", "true"]])
def test_without_a_command_it_says_how_it_is_used(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, str(LAUNCH), *arguments], check=False, capture_output=True, text=True)

    assert done.returncode == 2
    assert done.stderr.startswith("usage:")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_stop_goes_to_the_command_and_the_result_is_still_written(
    result: Path, tmp_path: Path, number: signal.Signals
) -> None:
    started = tmp_path / "started"
    wait = (
        "import pathlib, signal, sys, time\n"
        f"for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, lambda *_: sys.exit(9))\n"
        f"pathlib.Path({str(started)!r}).touch()\n"
        "time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-I", "-S", str(LAUNCH), str(result), "--", sys.executable, "-c", wait])
    while not started.exists():
        assert child.poll() is None
        time.sleep(0.01)
    child.send_signal(number)

    assert child.wait(30) == 9
    assert json.loads(result.read_text())["exit"] == 9


def test_a_broken_pipe_ends_the_command_as_it_would_from_a_shell(result: Path) -> None:
    assert launched(result, "sh", "-c", "kill -PIPE $$; exit 3").returncode == 128 + signal.SIGPIPE


def test_what_python_does_not_ignore_the_command_does_not_ignore_either(result: Path) -> None:
    done = launched(result, "grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status")
    ignored = {line.split()[0]: int(line.split()[1], 16) for line in done.stdout.splitlines()}
    # A shell's background job is born with SIGINT ignored: then so is ours, and what is asked is the rest.
    numbers = [number for number in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(number) != signal.SIG_IGN]
    asked = {1 << (number - 1) for number in (signal.SIGPIPE, signal.SIGXFSZ, *numbers)}

    assert not any(mask & bit for mask in ignored.values() for bit in asked)


def test_a_program_found_by_path_runs_in_the_jobs_path(result: Path, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "mytool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho hello\n")
    tool.chmod(0o755)

    assert launched(result, "mytool", env={"PATH": f"{tool.parent}:{os.defpath}"}).stdout == "hello\n"


def test_a_file_that_is_closed_meanwhile_keeps_none_of_the_others_from_being_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "held").open("w") as held:
        closed = 1 << 20  # above what a process may have open
        monkeypatch.setattr(os, "listdir", lambda folder: [str(closed), str(held.fileno())])
        assert launch.opened(os.getpid()) == {str(tmp_path / "held")}
