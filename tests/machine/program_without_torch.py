"""In place of `tare_inside.workloads.programs.train` and `.infer`: `program_without_torch.py train|infer JOB`.

The same marks, barrier, cold epochs, checkpoints and outcome, around steps that wait for a millisecond instead of
computing: the import of torch alone takes longer than a trial of this.
"""

import os
import sys
import time
import types
from itertools import pairwise
from pathlib import Path

torch = types.ModuleType("torch")  # what `training_loop` imports; gone before the fingerprint asks for a version
torch.save = lambda state, file: file.write(os.urandom(1 << 20))
sys.modules["torch"] = torch
from tare_inside import marks  # noqa: E402
from tare_inside.launch import wait_for_the_others  # noqa: E402
from tare_inside.programs import cold_epochs  # noqa: E402
from tare_inside.workloads.programs import running, tasks, training_loop  # noqa: E402
from tare_inside.workloads.programs.running import program, read_job  # noqa: E402
from tare_inside.workloads.programs.training_loop import Nothing  # noqa: E402

del sys.modules["torch"]

STEP_S = 0.001


def mini_batches(job):
    """Of an epoch over all images in the folder; 4 where there are none."""
    images = [name for _, _, names in os.walk(job["data_path"]) for name in names if name.endswith((".jpg", ".jpeg"))]
    return len(images) // job["batch"] or 4


def train(job):
    epochs, steps = job["epochs"], job["steps_per_epoch"] or mini_batches(job)
    marks.open_marks(job["marks"], 32 * epochs * (steps + 4))
    saved = training_loop.Checkpoints(job, dict)
    between = cold_epochs.Between(str(Path(job["marks"]).parent))
    parts = (lambda inputs, labels: inputs, lambda loss: time.sleep(STEP_S), lambda: None)
    if job["phases"]:
        compute = training_loop.computing_in_phases(*parts, wait=lambda: None, steps=epochs * steps, tick=lambda: None)
    else:
        compute = training_loop.computing(*parts)

    class Loader:
        def __iter__(self):
            while True:
                time.sleep(STEP_S)
                yield Nothing(), Nothing()

    same = [lambda tensor: tensor, lambda: None, lambda: None]
    ready = training_loop.Ready(
        Loader(), compute, *same, epochs, steps, training_loop.ON_HOST, between, lambda *_: None
    )
    marks.point("ready")
    wait_for_the_others()
    before, begin_ns = running.used(), marks.now_ns()
    marks.point("train_begin")

    def after_epoch(epoch, epoch_begin_ns, epoch_end_ns):
        marks.interval("epoch", epoch, epoch_begin_ns, epoch_end_ns)
        saved.after(epoch)

    done = training_loop.train(ready, after_epoch)
    marks.point("train_end")
    end_ns, after = marks.now_ns(), running.used()
    saved.remove()
    return {
        "train_s": (end_ns - begin_ns - between.spent_ns - saved.spent_ns) / 1e9,
        "epoch0_s": (done.epoch0_end_ns - begin_ns - between.first_ns) / 1e9,
        "steps": epochs * steps, "steps_per_epoch": steps, "loss_digest": "none", "loss": 1.0, "observer_s": 1e-6,
        "threads": job["threads"] or 1, "interop_threads": 1, "metrics": saved.said(),
        **{name: after[name] - before[name] for name in after},
    }  # fmt: skip


def infer(job):
    requests = job["requests"]
    names = tasks.APPLICATION if job.get("application") else tasks.NETWORK
    marks.open_marks(job["marks"], 32 * (requests + 4))
    marks.interval("model_load", -1, marks.now_ns(), marks.now_ns())
    write = marks.group(names, requests)
    marks.point("ready")
    wait_for_the_others()
    before, begin_ns = running.used(), marks.now_ns()
    for step in range(requests):
        since_ns = marks.now_ns()
        edges = [since_ns]
        for _ in names[:-1]:
            time.sleep(STEP_S / 4)
            edges.append(marks.now_ns())
        inside = [time_ns for pair in pairwise(edges) for time_ns in pair]
        write(step, *inside, since_ns, edges[-1])
    seconds, after = (marks.now_ns() - begin_ns) / 1e9, running.used()
    metrics = {
        "requests_per_s": requests / seconds,
        "items_per_s": requests * job["batch"] / seconds,
        "cpu_step_s": (after["cpu_train_s"] - before["cpu_train_s"]) / requests,
        "model_load_s": 0.001,
    }
    return {"steps": requests, "threads": 1, "answers_digest": "none", "answer": "none", "metrics": metrics}


def generate(job):
    steps = job["requests"] * (job["output"] - 1)
    marks.open_marks(job["marks"], 8 * (steps + 8))
    marks.point("ready")
    wait_for_the_others()
    begin_ns = marks.now_ns()
    for step in range(steps):
        before_ns = marks.now_ns()
        time.sleep(STEP_S / 4)
        if step % (job["output"] - 1) == 0:
            marks.interval("first_token", step, before_ns, marks.now_ns())
            before_ns = marks.now_ns()
            time.sleep(STEP_S / 4)
        marks.interval("step", step, before_ns, marks.now_ns())
    seconds = (marks.now_ns() - begin_ns) / 1e9
    tokens = steps * job["batch"]
    metrics = {"tokens_per_s": tokens / seconds, "time_token_s": seconds / tokens, "kv_cache_bytes": 1024}
    return {"steps": steps, "threads": 1, "answers_digest": "none", "answer": "none", "metrics": metrics}


if __name__ == "__main__":
    work = {"train": train, "finetune": train, "infer": infer, "generate": generate}[sys.argv[1]]
    sys.exit(program(work, read_job(sys.argv[2]), ("steps",)))
