"""`make bench`: what tare itself costs, measured side by side in this run; `make bench WHAT=sampler` is one part of it.

Each part runs in a process of its own, so that one part's imports do not weigh on the next.
"""

from __future__ import annotations

import subprocess
import sys

PARTS = {
    "benchmarks.sampler": "The sampler, against a psutil loop and against iostat and free",
    "benchmarks.marks": "A mark, against torch.profiler.record_function",
    "benchmarks.observer": "LeNet-5 with probes, marks and phases on, against off",
    "benchmarks.loaders": "Loading MNIST and JPEG, against torchvision's data sets and transforms",
    "benchmarks.trial_cost": "A trial, beyond its workload",
    "benchmarks.tracing": "LeNet-5 with each family of kernel events traced, against strace, perf trace and trace-cmd",
    "benchmarks.trace_decode": "Decoding a kernel trace, against trace-cmd report",
    "benchmarks.platforms": "Opening and closing each platform, against docker run, podman run, runc run",
    "benchmarks.watch_cost": "`tare watch` beside a run, with no page open and with one",
    "benchmarks.fleet": "A run over 10 and over 100 devices that pretend: what the controller needs",
    "benchmarks.answers": "`tare` from its start to its answer: CPU time of help, show, compare, front, verify, report",
    "benchmarks.growth": "`tare show` and `tare compare` on a store of 10 to 1,000 trials",
    "benchmarks.simulate": "Simulated page writes a second, against an OrderedDict and against whole-array numpy",
}


def main(wanted: list[str]) -> int:
    """The parts of these names, or all of them; the worst of their exit codes, and 2 for a name that is none."""
    chosen = [f"benchmarks.{name}" for name in wanted] or list(PARTS)
    if strange := [name for name in wanted if f"benchmarks.{name}" not in PARTS]:
        known = ", ".join(module.removeprefix("benchmarks.") for module in PARTS)
        sys.stderr.write(f"no part is called {strange[0]!r}. Parts: {known}.\n")
        return 2
    worst = 0
    for module in chosen:
        title = PARTS[module]
        print(f"\n{title}  (python -m {module})", flush=True)
        worst = max(worst, subprocess.run([sys.executable, "-m", module], check=False).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
