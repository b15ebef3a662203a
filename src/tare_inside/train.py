"""The built-in training program: `python -m tare_inside.train JOB`, JOB being JSON or the path of a file of it.

Marks, per mini-batch: `fetch` (the wait for it), `copy` (to the device), `compute` (forward, backward, optimiser
step), and `step` (all of it, end to end); with `phases` also `forward`, `backward`, `optimiser`. `epoch` spans each
pass, with the epoch as its step number. Points: `ready`, `train_begin`, `train_end`. The first fetch of an epoch
holds what it takes to begin one: the shuffle and, in epoch 0, the start of the loader's workers.

The same seed gives the same losses, bit for bit, on the same software; their digest shows that two runs did the same
work. Nothing is printed, collected or written in the timed loop.
"""

import gc
import hashlib
import json
import math
import resource
import struct
import sys

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from tare_inside import fingerprint, marks, named
from tare_inside.launch import write_whole

MARKS_A_STEP = 14  # seven intervals, when phases are on
MARKS_APART = 64


class Shuffled(object):
    """The indices of one epoch, in a new order each time: exactly as many as the epoch has room for."""

    def __init__(self, items, taken, seed):
        self._items, self._taken = items, taken
        self._chance = torch.Generator()
        self._chance.manual_seed(seed)

    def __len__(self):
        return self._taken

    def __iter__(self):
        return iter(torch.randperm(self._items, generator=self._chance)[: self._taken].tolist())


def make_loader(job, dataset, steps):
    """The DataLoader; options that need workers are given only where there are some, as torch asks."""
    options = {}
    if job["workers"] > 0:
        options["persistent_workers"] = True
        if job.get("prefetch") is not None:
            options["prefetch_factor"] = job["prefetch"]
    chance = torch.Generator()
    chance.manual_seed(job["seed"])
    return DataLoader(
        dataset,
        batch_size=job["batch"],
        sampler=Shuffled(len(dataset), steps * job["batch"], job["seed"]),
        num_workers=job["workers"],
        generator=chance,
        drop_last=True,
        **options,
    )


def computing(model, optimiser, finish):
    """A function that does forward, backward and optimiser step for one mini-batch; `finish` waits for the device."""

    def compute(step, images, labels):
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        finish()
        return loss

    return compute


def computing_in_phases(model, optimiser, finish, steps):
    """As `computing`, with each phase marked (and waited for) apart."""
    write, now = marks.group(("forward", "backward", "optimiser"), steps), marks.now_ns

    def compute(step, images, labels):
        t0 = now()
        loss = cross_entropy(model(images), labels)
        finish()
        t1 = now()
        loss.backward()
        finish()
        t2 = now()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        finish()
        t3 = now()
        write(step, t0, t1, t1, t2, t2, t3)
        return loss

    return compute


def train(loader, compute, to_device, epochs, steps):
    """The timed loop; the losses, still as tensors."""
    write, now = marks.group(("fetch", "copy", "compute", "step"), epochs * steps), marks.now_ns
    losses = []
    keep = losses.append
    step = 0
    for epoch in range(epochs):
        marks.begin("epoch", epoch)
        t0 = now()
        batches = iter(loader)
        for _ in range(steps):
            images, labels = next(batches)
            t1 = now()
            images, labels = to_device(images), to_device(labels)
            t2 = now()
            loss = compute(step, images, labels)
            t3 = now()
            write(step, t0, t1, t1, t2, t2, t3, t0, t3)
            keep(loss.detach())
            step += 1
            t0 = now()
        marks.end("epoch", epoch)
    return losses


def on_device(name):
    """How to bring a tensor to the device, and how to wait until the device has done its work."""
    if name == "cpu":
        return (lambda tensor: tensor), (lambda: None)
    device, finish = torch.device(name), torch.cuda.synchronize

    def to_device(tensor):
        tensor = tensor.to(device)
        finish()
        return tensor

    return to_device, finish


def used():
    """What this process has used so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_train_s": own.ru_utime + own.ru_stime,
        "minor_faults_training": own.ru_minflt,
        "major_faults_training": own.ru_majflt,
        "voluntary_switches_training": own.ru_nvcsw,
        "involuntary_switches_training": own.ru_nivcsw,
    }


def workers_cpu_s():
    """CPU time of the loader workers that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def losses_said(losses):
    """The last loss and a digest of all; a loss that is no number is left out, JSON has no word for it."""
    values = torch.stack(losses).float().tolist()
    packed = struct.pack("<{}f".format(len(values)), *values)
    said = {"steps": len(values), "loss_digest": hashlib.sha256(packed).hexdigest()}
    if math.isfinite(values[-1]):
        said["loss"] = values[-1]
    return said


def opened(job):
    """The data set and the number of mini-batches in an epoch; ValueError says why it cannot be trained on."""
    data = named.find("data", job["data"])
    asked = job.get("steps_per_epoch")
    problem = data.obstacle(job["data_path"], job["batch"] * (asked or 1))
    if problem is not None:
        raise ValueError(problem)
    dataset = data.Dataset(job["data_path"])
    return dataset, asked or len(dataset) // job["batch"]


def made_ready(job):
    """Everything that training needs, as the arguments of `train`; marks are open from here on."""
    if job.get("threads") is not None:
        torch.set_num_threads(job["threads"])
    torch.manual_seed(job["seed"])
    torch.backends.cudnn.deterministic = True
    dataset, steps = opened(job)
    total = steps * job["epochs"]
    marks.open_marks(job["marks"], total * MARKS_A_STEP + 2 * job["epochs"] + MARKS_APART)

    to_device, finish = on_device(job["device"])
    model = named.find("models", job["model"]).build().to(job["device"])
    optimiser = torch.optim.SGD(model.parameters(), lr=job["lr"], momentum=job["momentum"])
    if job["phases"]:
        compute = computing_in_phases(model, optimiser, finish, total)
    else:
        compute = computing(model, optimiser, finish)
    return make_loader(job, dataset, steps), compute, to_device, job["epochs"], steps


def run(job):
    """Train as the job says; what came of it, as plain data."""
    ready = made_ready(job)
    gc.collect()  # what the imports left behind: here, and not somewhere in the first epoch
    marks.point("ready")
    before, workers_before_s = used(), workers_cpu_s()
    marks.point("train_begin")
    losses = train(*ready)
    marks.point("train_end")
    after = used()
    del ready  # ends the loader's workers, so that their CPU time can be counted
    gc.collect()
    outcome = {name: after[name] - before[name] for name in after}
    outcome["cpu_train_s"] += workers_cpu_s() - workers_before_s
    outcome.update(losses_said(losses))
    outcome.update(threads=torch.get_num_threads(), interop_threads=torch.get_num_interop_threads())
    return outcome


def read_job(text):
    """The job, from JSON or from the file that holds it."""
    if text.lstrip().startswith("{"):
        return json.loads(text)
    with open(text) as file:
        return json.load(file)


def main(arguments):
    job = read_job(arguments[0])
    try:
        outcome = run(job)
    except ValueError as problem:
        sys.stderr.write("tare: {}\n".format(problem))
        return 1
    write_whole(job["outcome"], outcome)
    write_whole(job["fingerprint"], fingerprint.gather())
    print(json.dumps({name: outcome[name] for name in ("steps", "loss", "loss_digest") if name in outcome}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
