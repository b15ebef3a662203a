"""How a step on a GPU is timed, on a real one: sync and async, with phases and without, and whether the marks add up.

Needs torch with CUDA and nothing else of tare's, so that it runs on a machine where tare is not installed:

    PYTHONPATH=src python3 benchmarks/gpu_timing.py [STEPS]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tare_inside import marks
from tare_inside.workloads.formats import make

NETWORKS = {"lenet5": ("mnist", 28), "resnet18": ("cifar10", 224)}
SHOWN = (
    "step", "fetch", "copy", "compute", "gpu_step", "gpu_idle", "host_step", "host_fetch",
    "forward", "backward", "optimiser",
)  # fmt: skip
EPOCHS, BATCH = 3, 64


def ran(folder: Path, model: str, steps: int, timing: str, phases: bool, pin: bool) -> dict[str, Any]:
    """The outcome of a training in a process of its own, with the seconds of each interval by step."""
    data, pixels = NETWORKS[model]
    make.make(data, str(folder / data), steps * BATCH, 0)
    workdir = folder / f"{model}-{timing}-{phases}-{pin}"
    workdir.mkdir()
    job = {
        "model": model, "data": data, "data_path": str(folder / data), "pixels": pixels, "batch": BATCH, "workers": 4,
        "prefetch": 2, "pin": pin, "epochs": EPOCHS, "steps_per_epoch": steps, "lr": 0.01, "momentum": 0.9,
        "threads": None, "phases": phases, "device": "cuda", "timing": timing, "seed": 3,
        "marks": str(workdir / "marks.bin"), "outcome": str(workdir / "outcome.json"),
        "fingerprint": str(workdir / "fingerprint.json"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tare_inside.workloads.programs.train", json.dumps(job)],
        check=False, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH="src"), timeout=300,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    rows, lost = marks.load(job["marks"])
    return {**json.loads((workdir / "outcome.json").read_text()), "lost": lost, "spans": _spans(rows)}


def _spans(rows: list[Any]) -> dict[str, dict[int, float]]:
    begun: dict[tuple[str, int], int] = {}
    spans: dict[str, dict[int, float]] = {}
    for t_ns, name, edge, step in rows:
        if edge == "begin":
            begun[name, step] = t_ns
        elif edge == "end":
            spans.setdefault(name, {})[step] = (t_ns - begun[name, step]) / 1e9
    return spans


def text(outcome: dict[str, Any], steps: int) -> str:
    """Medians after epoch 0 in ms; how far stall + copy + compute reach into the step, at the least and at the most."""
    spans = outcome["spans"]
    late = {name: [s for step, s in spans.get(name, {}).items() if step >= steps] for name in SHOWN}
    medians = "".join(f"{statistics.median(late[name]) * 1e3:11.3f}" if late[name] else f"{'-':>11}" for name in SHOWN)
    shares = [
        (spans["fetch"][step] + spans["copy"][step] + spans["compute"][step]) / spans["step"][step]
        for step in spans["step"]
        if step >= steps
    ]
    mean_ms = (outcome["train_s"] - outcome["epoch0_s"]) / ((EPOCHS - 1) * steps) * 1e3
    placed = outcome["gpu_clock"]
    return (
        f"{medians}{mean_ms:11.3f}   parts/step {min(shares):.4f}..{max(shares):.4f}   "
        f"drift {placed['drift_s'] * 1e6:+.1f} us, +-{placed['uncertainty_s'] * 1e6:.1f} us   "
        f"marking {outcome['observer_s'] * 1e6:.1f} us   lost {outcome['lost']}   {outcome['loss_digest'][:8]}"
    )


def main(steps: int = 100) -> int:
    sys.stdout.write(f"{'medians in ms':34}" + "".join(f"{name:>11}" for name in (*SHOWN, "mean step")) + "\n")
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for model in NETWORKS:
            digests = set()
            for timing, phases, pin in (
                ("sync", False, False), ("sync", True, False), ("async", False, False), ("async", False, True),
                ("async", True, True),
            ):  # fmt: skip
                outcome = ran(Path(folder), model, steps, timing, phases, pin)
                title = f"{model} {timing}{' phases' if phases else ''}{' pinned' if pin else ''}"
                sys.stdout.write(f"{title:34}{text(outcome, steps)}\n")
                sys.stdout.flush()
                digests.add(outcome["loss_digest"])
                parts = ("fetch", "copy", "compute")
                spans = outcome["spans"]
                over = [n for n in spans["step"] if sum(spans[p][n] for p in parts) > 1.01 * spans["step"][n]]
                wrong += bool(over) + bool(outcome["lost"])
            wrong += len(digests) != 1
    sys.stdout.write("the marks add up and the losses are equal\n" if not wrong else f"{wrong} things are wrong\n")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
