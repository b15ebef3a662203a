"""A real server on bare metal and in a container, under a load from outside: `tare weigh --server`."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest
import warm_tare

APP = """
import asyncio, sys
async def answer(reader, writer):
    try:
        while await reader.readuntil(b"\\r\\n\\r\\n"):
            await asyncio.sleep(0.002)
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nhello")
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        writer.close()
async def main():
    async with await asyncio.start_server(answer, "127.0.0.1", int(sys.argv[1])) as server:
        await server.serve_forever()
asyncio.run(main())
"""


@pytest.mark.machine("root", "runc")
def test_a_server_is_weighed_in_one_command(tmp_path: Path) -> None:
    """The container has a loopback of its own: the load must enter it."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "requests.txt").write_text("/a\n/b\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    words = ["weigh", "--in", "runc"]
    words += [
        "--server",
        f"{sys.executable} app.py {port}",
        "--port",
        str(port),
        "--set",
        "workload.requests=requests.txt",
    ]
    words += [
        "--set",
        "workload.count=40",
        "--load",
        "rate:100/s",
        "--slo",
        "10 s",
        "--blocks",
        "1",
        "-o",
        "store",
        "--json",
    ]
    done = warm_tare.run(*words, cwd=tmp_path)
    assert done.stdout, done.stderr
    shown = warm_tare.run("show", "store", "--json", cwd=tmp_path)
    trials = json.loads(shown.stdout)["trials"]
    assert {trial["settings"]["platform"] for trial in trials} == {"bare", "runc"}, done.stderr
    for trial in trials:
        assert trial["state"] in ("ok", "suspect"), trial["reasons"]
        load = trial["facts"]["outcome"]["load"]
        assert (load["sent"], load["ok"], load["good"]) == (40, 40, 40), load
        assert trial["metrics"]["steps"] == 40
        assert trial["metrics"]["step_s"] > 0.002
        assert trial["metrics"]["goodput_per_s"] == pytest.approx(trial["metrics"]["requests_per_s"])
        assert trial["facts"]["served"]["stop_s"] is not None


ONE_AT_A_TIME = APP.replace("await asyncio.sleep(0.002)", "async with lock: await asyncio.sleep(0.02)").replace(
    "import asyncio, sys", "import asyncio, sys\nlock = asyncio.Lock()"
)


@pytest.mark.machine("root", "runc")
@pytest.mark.deep
def test_the_sides_take_turns_at_the_rates_around_a_goal_and_the_same_command_resumes(tmp_path: Path) -> None:
    """A server of 50 answers per second, which waits: a busy machine makes it later, not much slower."""
    (tmp_path / "app.py").write_text(ONE_AT_A_TIME)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    words = ["weigh", "--in", "runc", "--server", f"{sys.executable} app.py {port}", "--port", str(port)]
    words += [
        "--slo",
        "p90 < 300 ms",
        "--set",
        "workload.count=60",
        "--set",
        "workload.warm_up=10",
        "--blocks",
        "1",
        "-o",
        "store",
        "--json",
    ]
    done = warm_tare.run(*words, cwd=tmp_path)
    assert done.stdout, done.stderr
    assert done.stderr.count("no 95 % interval") == 1, done.stderr
    trials = json.loads(warm_tare.run("show", "store/blocks", "--json", cwd=tmp_path).stdout)["trials"]
    rates: dict[str, set[float]] = {"bare": set(), "runc": set()}
    for trial in trials:
        rates[trial["settings"]["platform"]].add(trial["settings"]["workload.rate"])
    assert all(len(own) in (5, 6) and 10 < min(own) < max(own) < 120 for own in rates.values()), rates
    assert min(rates["bare"]) == min(rates["runc"])
    (found,) = json.loads(done.stdout)["comparisons"]
    assert found["verdict"] == "cannot_tell"
    if found["ours"] and found["theirs"]:  # else a busy machine moved it beyond the rates, which the reasons say
        assert (found["metric"], found["n"], found["more_trials"]) == ("goal_rate_per_s", 1, 5)
        assert all(min(map(min, rates.values())) < found[side]["value"] < 120 for side in ("ours", "theirs"))
    else:
        assert done.returncode == 1
        assert "rates on both sides" in done.stderr, done.stderr
    again = warm_tare.run(*words, cwd=tmp_path)
    assert json.loads(again.stdout)["comparisons"] == [found], again.stderr
    shown = json.loads(warm_tare.run("show", "store/blocks", "--json", cwd=tmp_path).stdout)["trials"]
    assert len(shown) == len(trials)
