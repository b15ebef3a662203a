"""Libraries behind a small ASGI app (docs/examples/serve_network.py), as servers on bare metal and in runc."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent
APP = HERE.parents[1] / "docs" / "examples" / "serve_network.py"
MODULES = {"onnx": ("onnx", "onnxruntime", "uvicorn"), "torch": ("torch", "uvicorn")}
CLOSED, OPEN = {"concurrency": 2}, {"rate": "100/s"}


def needs(backend: str) -> None:
    for name in MODULES[backend]:
        pytest.importorskip(name)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("serve_network", APP)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked(app: Any, path: str, query: str = "", body: bytes | None = None) -> tuple[int, Any]:
    """What the app answers, without a server around it."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body or b""}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    method = "GET" if body is None else "POST"
    asyncio.run(app({"type": "http", "method": method, "path": path, "query_string": query.encode()}, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.mark.parametrize("backend", ["onnx", pytest.param("torch", marks=pytest.mark.deep)])
def test_the_example_answers_as_numpy_computes_it(backend: str) -> None:
    needs(backend)
    import numpy as np

    module = example()
    weights = module.matrices(64, 2)
    app = module.App({"onnx": module.by_onnx, "torch": module.by_torch}[backend](weights, 1), 64)
    values = np.random.default_rng(3).standard_normal((1, 64), np.float32)
    layer = values
    for each in weights[:-1]:
        layer = np.maximum(layer @ each, 0)
    wanted = (layer @ weights[-1])[0]

    for status, answer in (
        asked(app, "/predict", "seed=3"),
        asked(app, "/predict", body=json.dumps({"values": values[0].tolist()}).encode()),
    ):
        assert status == 200
        assert answer["class"] == int(wanted.argmax())
        assert answer["scores"] == pytest.approx(wanted.tolist(), abs=1e-3)
    assert asked(app, "/health")[0] == 200
    assert asked(app, "/predict", body=b'{"values": [1]}')[0] == 400
    assert asked(app, "/none")[0] == 404


@pytest.mark.machine("root", "runc")
@pytest.mark.parametrize("backend", ["onnx", pytest.param("torch", marks=pytest.mark.deep)])
def test_a_network_behind_an_app_is_driven_in_both_loops_and_a_side_may_have_its_own_threads(
    tmp_path: Path, backend: str
) -> None:
    """One process each: bare metal with one thread, runc with three, by an option of that side alone."""
    needs(backend)
    port = free_port()
    (tmp_path / "requests.txt").write_text("/predict?seed=1\n/predict?seed=2\n")
    argv = [sys.executable, str(APP), "--backend", backend, "--port", str(port), "--threads", "1", "--width", "64"]
    server = {
        "argv": argv, "port": port, "ready": "/health", "requests": str(tmp_path / "requests.txt"), "count": 40,
        "warm_up": 10, "cwd": str(tmp_path),
    }  # fmt: skip
    study = {
        "study": "served",
        "platform": ["bare", {"runc": {"arguments": {"--threads": "3", "--width": "512"}}}],
        "workload": [{"server": {**server, **CLOSED}}, {"server": {**server, **OPEN}}],
        "repeat": 1,
        "aa": False,
        "rehearse": False,
    }
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    env = dict(os.environ)
    tare = [sys.executable, str(HERE / "undisturbed.py")]
    run = [*tare, "run", "study.yaml", "-o", "store"]
    done = subprocess.run(run, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=300, env=env)
    shown = subprocess.run(
        [*tare, "show", "store", "--json"], check=False, capture_output=True, text=True, cwd=tmp_path, env=env
    )
    assert shown.returncode == 0, done.stderr + shown.stderr
    trials = json.loads(shown.stdout)["trials"]

    assert len(trials) == 4, done.stderr
    threads: dict[str, set[int]] = {"bare": set(), "runc": set()}
    for trial in trials:
        assert trial["state"] in ("ok", "suspect"), trial["reasons"]
        load = trial["facts"]["outcome"]["load"]
        assert (load["sent"], load["ok"]) == (40, 40), load
        assert trial["metrics"]["requests_per_s"] > 0
        threads[trial["settings"]["platform"]].add(trial["facts"]["served"]["threads"])
    assert {trial["settings"].get("workload.rate") for trial in trials} == {None, 100.0}
    assert min(threads["runc"]) == max(threads["bare"]) + 2, threads
