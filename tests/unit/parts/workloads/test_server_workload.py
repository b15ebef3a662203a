"""A server as a workload: its fields, its job inside, and the driver outside; and how it is started and stopped."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tare.base.errors import TrialError
from tare.base.host import LocalHost
from tare.parts.find import find
from tare.parts.workloads.server import SERVE, Server

APP = """
import http.server, signal, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if time.monotonic() > READY else 503)
        self.end_headers()
    def log_message(self, *words):
        pass
READY = time.monotonic() + 0.2
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("now it listens", flush=True)
server.serve_forever()
"""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(APP)
    return path


def started(workdir: Path, argv: list[str], env: dict[str, str] | None = None, **order: Any) -> subprocess.Popen[str]:
    """The program inside, as a trial runs it."""
    told = {"folder": str(workdir), "ready": None, "start_s": 20.0, "grace_s": 10.0, "cores": []} | order
    words = [sys.executable, "-I", "-S", str(workdir / SERVE), json.dumps(told), "--", *argv]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def until(path: Path, child: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert child.poll() is None, child.communicate()
        time.sleep(0.01)


@pytest.mark.parametrize("ready", [None, "/health", "now it"])
def test_a_server_is_waited_for_and_stopped_when_the_load_is_done(workdir: Path, app: Path, ready: str | None) -> None:
    child = started(workdir, [sys.executable, str(app), str(port := free_port())], port=port, ready=ready)
    until(workdir / "listens", child)
    (workdir / "done").touch()
    out, err = child.communicate(timeout=60)

    assert (child.returncode, err) == (0, "")
    assert "now it listens" in out
    served = json.loads((workdir / "served.json").read_text())
    assert served["stop_s"] is not None
    assert served["cores"] == len(os.sched_getaffinity(0))
    assert served["threads"] >= 1
    assert served["ready_s"] > (0.15 if ready == "/health" else 0)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_beside_others_a_server_is_ready_first_and_gets_its_load_when_all_are(workdir: Path) -> None:
    program = "import os; print(sorted(name for name in os.environ if 'TARE' in name), flush=True)"
    program += f"; import socket; socket.create_server(('127.0.0.1', {(port := free_port())})).accept(); input()"
    env = {"TARE_BARRIER": str(workdir)}
    child = started(workdir, [sys.executable, "-c", program], env, port=port, ready="[")
    until(workdir / "ready", child)
    time.sleep(0.1)
    assert not (workdir / "listens").exists()
    (workdir / "go").touch()
    until(workdir / "listens", child)
    (workdir / "done").touch()
    out, _ = child.communicate(timeout=60)
    assert out.splitlines()[0] == "[]"  # the server knows nothing of a barrier


def test_one_that_does_not_stop_is_killed_and_that_is_recorded(workdir: Path, app: Path) -> None:
    words = [sys.executable, str(app), str(port := free_port()), "stubborn"]
    child = started(workdir, words, port=port, ready="now it", grace_s=0.2)
    until(workdir / "listens", child)
    (workdir / "done").touch()
    child.communicate(timeout=60)
    assert child.returncode == 0
    assert json.loads((workdir / "served.json").read_text())["stop_s"] is None


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import sys; sys.exit(7)", "tare: the server ended with code 7 before it was ready. It printed nothing.\n"),
        ("print(1, flush=True); 2 / 0", "Error: division by zero\ntare: the server ended with code 1 before it"),
        ("import time; time.sleep(60)", "was not ready 0.3 s after its start: no answer on port"),
    ],
)
def test_one_that_never_listens_fails_with_a_sentence(workdir: Path, program: str, says: str) -> None:
    child = started(
        workdir, [sys.executable, "-c", program], port=free_port(), start_s=0.3 if "sleep" in program else 20
    )
    _, err = child.communicate(timeout=60)
    assert child.returncode in (1, 7)
    assert says in err


@pytest.mark.parametrize(("apart", "says"), [(0, "GET /health on port"), (1, "; it listens on port")])
def test_a_wrong_path_and_a_wrong_port_are_named(workdir: Path, tmp_path: Path, apart: int, says: str) -> None:
    (tmp_path / "app.py").write_text(APP.replace("200 if time.monotonic() > READY else 503", "404"))
    words, own = [sys.executable, str(tmp_path / "app.py")], free_port()
    child = started(workdir, [*words, str(own)], port=free_port() if apart else own, ready="/health", start_s=3)
    _, err = child.communicate(timeout=60)
    assert err.startswith("now it listens\ntare: the server was not ready 3 s after its start: ")
    assert says in err and (f"{own}: is `port` another" if apart else "was answered with 404") in err


def test_a_port_that_is_taken_is_refused(workdir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        child = started(workdir, ["true"], port=taken.getsockname()[1])
        _, err = child.communicate(timeout=60)
    assert child.returncode == 1
    assert "something listens on port" in err


def test_the_job_is_the_server_inside_and_the_driver_outside_has_the_same_folder(tmp_path: Path) -> None:
    server = Server(argv=("python", "app.py"), port=8000, count=50, rate=20.0, goal=0.3)
    assert find("workloads", "server") is Server
    job, driver = server.job(LocalHost(), tmp_path, 7), server.driver(LocalHost(), tmp_path, 7)

    assert job.argv[-3:] == ("--", "python", "app.py")
    assert "TARE_MARKS" not in job.env  # the marks are the driver's
    order, inside = json.loads(driver.argv[-1]), json.loads(job.argv[-4])
    assert order["marks"] == str(tmp_path / "marks.bin")
    assert (order["seed"], order["rate"], order["goal_s"], order["port"]) == (7, 20.0, 0.3, 8000)
    assert not set(order["cores"]) & set(inside["cores"])
    assert driver.argv[0] == sys.executable  # no network of its own: none to enter


def test_a_side_may_have_other_values_of_its_options(tmp_path: Path) -> None:
    server = Server(argv=("app", "--threads", "{threads}"), vary={"threads": 4}, port=8000)
    job = server.with_options({"--threads": "1", "--mode": "a"}).job(LocalHost(), tmp_path, 7)
    assert job.argv[-6:] == ("--", "app", "--threads", "1", "--mode", "a")
    with pytest.raises(TrialError, match="for a command or a server, and idle is neither"):
        find("workloads", "idle")().with_options({"--threads": "1"})
    with pytest.raises(TrialError, match="--threads stands 2 times"):
        Server(argv=("app", "--threads", "1", "--threads=2"), port=8000).with_options({"--threads": "1"})


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"steps": 3, "attach": "none"}, "`steps` and `minutes`"),
        ({"arrivals": "trace"}, "go together"),
        ({"arrivals": "bursts"}, "needs a `rate`"),
        ({"goal_of": "first_token"}, "only streamed answers"),
        ({"requests": "requests.txt"}, "write the whole path"),
        ({"port": 0}, "greater than 0"),
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Server.model_validate({"argv": "python app.py", "port": 8000} | fields)


def test_a_missing_file_of_requests_is_an_obstacle(tmp_path: Path) -> None:
    server = Server(argv=("true",), port=8000, requests=tmp_path / "none.txt")
    assert [each.code for each in server.obstacles(LocalHost())] == ["needs.file"]


def test_a_wrong_line_of_a_trace_is_found_before_the_first_trial(tmp_path: Path) -> None:
    (tmp_path / "times").write_text("0.1\nGET /\n")
    server = Server(argv=("true",), port=8000, arrivals="trace", trace=tmp_path / "times")
    assert "line 2: 'GET /' is no time in seconds" in [str(each) for each in server.obstacles(LocalHost())][-1]


def test_files_that_cannot_be_read_are_obstacles_each_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "requests").write_text("{no JSON\n")
    (tmp_path / "times").mkdir()
    files = {"requests": tmp_path / "requests", "trace": tmp_path / "times"}
    found = Server(argv=("true",), port=8000, arrivals="trace", **files).obstacles(LocalHost())
    assert [each.code for each in found] == ["needs.file"] * 2
    assert "begins like JSON" in str(found[0])
    assert str(found[1]) == f"{tmp_path / 'times'} cannot be read: Is a directory."


@pytest.mark.parametrize(
    ("fields", "title"),
    [
        ({"argv": ["python3", "-m", "tare_inside.programs.small_server", "18474", "2"]}, "small_server, 1 in flight"),
        ({"argv": ["llama-server", "--port", "8080"], "rate": "100/s"}, "llama-server, 100 requests/s"),
        ({"argv": ["python3", "app.py", "8080"], "label": "my model"}, "my model"),
    ],
)
def test_a_server_is_called_by_its_program_and_its_load(fields: dict[str, Any], title: str) -> None:
    assert Server.model_validate({"port": 8080, **fields}).title() == title
