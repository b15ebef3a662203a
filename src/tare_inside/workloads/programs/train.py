"""The built-in training program: `python -m tare_inside.workloads.programs.train JOB`.

JOB is JSON or the path of a file.

Marks, per mini-batch: `fetch` (the wait for it), `copy` (to the device), `compute` (forward, backward, optimiser
step), and `step` (all of it, end to end); with `phases` also `forward`, `backward`, `optimiser`. `epoch` spans each
pass, with the epoch as its step number, and `checkpoint` each time that what was learnt is written to disk, if it is
to be (`training_loop.py`). Points: `ready`, `train_begin`, `train_end`. The first fetch of an epoch
holds what it takes to begin one: the shuffle and, in epoch 0, the start of the loader's workers.

On a GPU `gpu_step`, its parts and `gpu_idle` come from CUDA events (`gpu.py`), and what really ran in a window of
steps from CUPTI (`activity.py`). `timing: sync` waits for the GPU after the copy, after each
step and, with `phases`, after each phase; `timing: async` never waits, and the marks above are the events' own, placed
on the host's clock after the run, beside the host's `host_fetch`, `host_copy`, `host_compute`, `host_step`.

The same seed gives the same losses, bit for bit, on the same software; their digest shows that two runs did the same
work. Nothing is printed, collected or written in the timed steps.
"""

import gc
import hashlib
import inspect
import math
import os
import struct
import sys
from collections import namedtuple
from functools import partial

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from tare_inside import BEGAN_NS, activity, gpu, marks, named
from tare_inside.gpu import GpuClock
from tare_inside.launch import wait_for_the_others
from tare_inside.programs import cold_epochs
from tare_inside.turns import joined
from tare_inside.workloads.programs import running, training_loop
from tare_inside.workloads.programs.running import program, read_job
from tare_inside.workloads.programs.training_loop import nothing

MOST_KEPT_ITEMS, MOST_KEPT_BYTES = 512, 256 << 20


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


class Kept(object):
    """The first items of a data set, ready-made in memory: nothing is read and nothing decoded when one is asked for.

    As many indices as the data set has; they go round where there are more of them than items kept.
    """

    def __init__(self, dataset):
        self.classes = getattr(dataset, "classes", None)
        self._length = len(dataset)
        self._items = []
        room = MOST_KEPT_BYTES
        for index in range(min(self._length, MOST_KEPT_ITEMS)):
            item = dataset[index]
            room -= sum(part.numel() * part.element_size() for part in item if torch.is_tensor(part))
            if room < 0 and self._items:
                break
            self._items.append(item)

    def __len__(self):
        return self._length

    def __getitem__(self, index):
        return self._items[index % len(self._items)]


def open_data(job):
    """(the data set, the mini-batches of an epoch, the classes to tell apart); ValueError says why it cannot be."""
    data, model = named.find("data", job["data"]), named.find("models", job["model"])
    requested = job.get("steps_per_epoch")
    problem = data.obstacle(job["data_path"], job["batch"] * (requested or 1))
    if problem is not None:
        raise ValueError(problem)
    dataset = data.Dataset(job["data_path"], **_view(job, data, model))
    if job.get("source") == "memory":
        dataset = Kept(dataset)
    _check_shape(job, dataset[0][0], model)
    return dataset, requested or len(dataset) // job["batch"], _classes(job, dataset)


def _view(job, data, model):
    """How the items are to look, by the network; of that, what this data set knows about."""
    size = model.INPUT[-1]
    wanted = {
        "pixels": job.get("pixels") or size,
        "length": job.get("length") or size,
        "vocabulary": job.get("classes") or model.CLASSES,
    }
    known = inspect.signature(data.Dataset).parameters
    return {name: value for name, value in wanted.items() if name in known}


def _check_shape(job, first, model):
    """An image has as many colours as the network takes; what else is wrong with a shape, the network says itself."""
    if first.dim() == 3 and first.shape[0] != model.INPUT[0]:
        raise ValueError(
            "{} takes images of {} channel(s), and those in {} have {}: choose a `model` and `data` that fit.".format(
                job["model"], model.INPUT[0], job["data_path"], first.shape[0]
            )
        )


def _classes(job, dataset):
    there, requested = getattr(dataset, "classes", None), job.get("classes")
    if requested is not None and there is not None and requested < there:
        raise ValueError(
            "`classes` is {}, and {} has labels of {} classes: make it {} or more, or leave it out.".format(
                requested, job["data_path"], there, there
            )
        )
    return requested or there


def make_loader(job, dataset, steps):
    """The DataLoader; options that need workers are given only where there are some, as torch asks."""
    options, items = {}, job["batch"] * pieces_of(job)
    if job["workers"] > 0:
        options["persistent_workers"] = True
        if job.get("prefetch") is not None:
            options["prefetch_factor"] = job["prefetch"]
    chance = torch.Generator()
    chance.manual_seed(job["seed"])
    return DataLoader(
        dataset,
        batch_size=items,
        sampler=Shuffled(len(dataset), steps * items, job["seed"]),
        num_workers=job["workers"],
        generator=chance,
        drop_last=True,
        pin_memory=bool(job.get("pin")),
        **options,
    )


MARKS_A_STEP = 34  # seventeen intervals: all that a step on a GPU can have
MARKS_A_PIECE = 8  # forward and backward, on the host's clock and on the GPU's
MARKS_APART = 64


def pieces_of(job):
    """In how many pieces, each a `batch`, a step's items go through the network."""
    return job.get("accumulate") or 1


def mover(job):
    """How to bring a tensor to the device."""
    if job["device"] == "cpu":
        return lambda tensor: tensor
    device, at_once = torch.device(job["device"]), job["timing"] == "async"
    return lambda tensor: tensor.to(device, non_blocking=at_once)


def arranged(job, loader, parts, epochs, steps, marked):
    """(what the loop needs, the GPU's clock or None where there is none); `parts` are forward, backward, optimise."""
    on_gpu, is_async, pieces = job["device"] != "cpu", job["timing"] == "async", pieces_of(job)
    wait = torch.cuda.synchronize if on_gpu and not is_async else nothing
    clock = GpuClock(torch.cuda, epochs * steps * (2 * pieces + 3)) if on_gpu and marked else None
    tick = clock.tick if clock else nothing
    in_phases = marked and job["phases"] and not is_async
    if in_phases or pieces > 1:
        compute = training_loop.computing_in_phases(
            *parts, tick=tick, wait=wait if in_phases else None, steps=epochs * steps, pieces=pieces
        )
    elif clock:
        compute = training_loop.computing_between_ticks(*parts, tick=tick)
    else:
        compute = training_loop.computing(*parts)
    names = training_loop.BESIDE_GPU if is_async else training_loop.ON_HOST
    ready = training_loop.Ready(loader, compute, mover(job), wait, tick, epochs, steps, names, nothing, nothing)
    return ready, clock


def built(job, classes):
    """The network on its device, with torch's default initialisation, and its optimiser."""
    options = {} if classes is None else {"classes": classes}
    if job.get("scale", 1) != 1:
        options["scale"] = job["scale"]
    model = named.find("models", job["model"]).build(**options).to(job["device"])
    optimiser = torch.optim.SGD(model.parameters(), lr=job["lr"], momentum=job["momentum"])
    return model, optimiser


# What is trained: `open_data(job)`, `built(job, classes)` and `parts(model, optimiser)`, as the functions here.
Task = namedtuple("Task", "open_data built parts")
NETWORK = Task(open_data, built, partial(training_loop.parts_of, loss_of=cross_entropy))


def made_ready(job, task):
    """What the loop needs, the GPU's clock and window, and the checkpoints; from here on marks are open, if any."""
    if job.get("threads") is not None:
        torch.set_num_threads(job["threads"])
    torch.manual_seed(job["seed"])
    torch.backends.cudnn.deterministic = True
    times_ns = [BEGAN_NS, marks.now_ns()]
    dataset, steps, classes = task.open_data(job)
    times_ns.append(marks.now_ns())
    if job["marked"]:
        each = MARKS_A_STEP + MARKS_A_PIECE * (pieces_of(job) - 1)
        marks.open_marks(job["marks"], steps * job["epochs"] * each + 4 * job["epochs"] + MARKS_APART)
    else:
        marks.close_marks()  # or the first mark would open a file by itself
    marks.interval("imports", -1, *times_ns[:2])
    marks.interval("data_open", -1, *times_ns[1:])
    running.mark_device(torch, job["device"])
    loader = make_loader(job, dataset, steps)
    model, optimiser = task.built(job, classes)
    parts = task.parts(model, optimiser)
    ready, clock = arranged(job, loader, parts, job["epochs"], steps, job["marked"])
    folder = os.path.dirname(job["marks"])
    turns = joined(folder)
    window = activity.of_script(torch, folder) if clock and turns is None else None  # it would hold waits
    stepped = window.fetched_and_stepped if window else nothing
    if turns is not None:
        stepped = lambda step, begin_ns, end_ns: turns.stepped(step + 1)  # noqa: E731
    ready = ready._replace(freshen=cold_epochs.Between(folder), stepped=stepped)
    return ready, clock, window, saver(job, model, optimiser)


def saver(job, model, optimiser):
    """What writes the network and its optimiser to disk between passes, if it is to be done."""
    wait = nothing if job["device"] == "cpu" else torch.cuda.synchronize
    return training_loop.Checkpoints(
        job, lambda: {"model": model.state_dict(), "optimiser": optimiser.state_dict()}, wait
    )


def trained(job, ready, clock, saved, window=None):
    """Train; the loop's own answer, and what it took from the first fetch to the last kernel."""
    loop = training_loop.train if job["marked"] else training_loop.train_unmarked
    # With `timing: async` the host is ahead of the GPU, whose last kernel of a pass says when it was over.
    note_epoch = partial(marks.interval, "epoch") if job["timing"] == "sync" else nothing

    def after_epoch(epoch, begin_ns, end_ns):
        note_epoch(epoch, begin_ns, end_ns)
        saved.after(epoch)

    if clock is not None:
        clock.start()
    marks.point("train_begin")
    begin_ns = marks.now_ns()
    done = loop(ready, after_epoch)
    if job["device"] != "cpu":
        torch.cuda.synchronize()
    end_ns = marks.now_ns()
    marks.point("train_end")
    reported = {
        "train_s": (end_ns - begin_ns - ready.freshen.spent_ns - saved.spent_ns) / 1e9,
        "epoch0_s": (done.epoch0_end_ns - begin_ns - ready.freshen.first_ns) / 1e9,
    }
    if window is not None:
        reported["train_s"] -= window.spent_until_s(end_ns)
        reported["epoch0_s"] -= window.spent_until_s(done.epoch0_end_ns)
    if clock is not None:
        clock.stop()
        reported["gpu_clock"] = mark_by_events(job, clock, done.waits, ready.steps)
    return done.losses, reported


def mark_by_events(job, clock, waits, steps_per_epoch):
    """Write the marks that the GPU's events tell of; how well its clock could be placed on the host's."""
    is_async = job["timing"] == "async"
    times_ns, reported = clock.place()
    spans = gpu.training(pieces_of(job))
    steps = gpu.by_step(times_ns, spans)
    gpu.mark_gpu(steps, spans)
    if is_async:
        gpu.mark_steps(steps, waits, spans[1:] if job["phases"] else ())
        gpu.mark_epochs(steps, waits, steps_per_epoch)
    return reported


def loss_digest(losses):
    """The first and the last loss and a digest of all; one that is no number is left out, JSON has no word for it."""
    values = torch.stack(losses).float().tolist()
    packed = struct.pack("<{}f".format(len(values)), *values)
    reported = {"steps": len(values), "loss_digest": hashlib.sha256(packed).hexdigest()}
    if math.isfinite(values[-1]):
        reported["loss"] = values[-1]
    if math.isfinite(values[0]):
        reported["first_loss"] = values[0]
    return reported


def run(job, task=NETWORK):
    """Train as the job says; what came of it, as plain data."""
    job = dict({"timing": "sync", "marked": True}, **job)
    ready, clock, window, saved = made_ready(job, task)
    gc.collect()  # what the imports left behind: here, and not somewhere in the first epoch
    marks.point("ready")
    wait_for_the_others()
    before, workers_before_s = running.used(), running.workers_cpu_s()
    try:
        losses, outcome = trained(job, ready, clock, saved, window)
        after = running.used()
    finally:
        saved.remove()
    if window is not None:
        after["cpu_train_s"] -= window.cpu_s
        window.close()
    outcome["steps_per_epoch"] = ready.steps
    between = ready.freshen
    del ready  # ends the loader's workers, so that their CPU time can be counted
    gc.collect()
    outcome.update((name, after[name] - before[name]) for name in after)
    outcome["cpu_train_s"] += running.workers_cpu_s() - workers_before_s - between.cpu_s - saved.cpu_s
    outcome.update(loss_digest(losses), metrics=saved.said())
    outcome.update(threads=torch.get_num_threads(), interop_threads=torch.get_num_interop_threads())
    if job["marked"]:
        outcome["observer_s"] = training_loop.marking_s(
            job["marks"] + ".scratch", partial(arranged, job), pieces_of(job)
        )
    return outcome


def main(arguments):
    return program(run, read_job(arguments[0]), ("steps", "loss", "loss_digest"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
