"""Writes what was learnt to disk after every so many passes, where the job asks for that.

A checkpoint is what scripts write: the weights, the optimiser's state and the number of the pass, by `torch.save`, and
no fsync: the kernel writes it back when it sees fit. `new` files are written one beside the other; the `same` file is
opened again and overwritten in place, which the kernel treats otherwise. Each is marked as `checkpoint`, and lies in no
step, in no epoch and not in the training's own time.
"""

import os
import shutil
import time

import torch

from tare_inside import marks


def no_wait():
    """Where no device has to be waited for."""


class Checkpoints(object):
    """Saves what `state()` gives, and keeps account of it. Nothing is made before the first one."""

    def __init__(self, job, state, wait=no_wait):
        self._every, self._same = job.get("checkpoint_every"), job.get("checkpoint_file") == "same"
        self._folder, self._state, self._wait = job.get("checkpoint_folder"), state, wait
        self.count = self.bytes = self.spent_ns = 0
        self.cpu_s = 0.0

    def after(self, epoch):
        """Write one, if this pass is one of those that end with it."""
        if not self._every or (epoch + 1) % self._every:
            return
        self._wait()  # for kernels that still run: they are training
        begin_ns, begin_cpu_s = marks.now_ns(), time.process_time()
        self._write(dict(self._state(), epoch=epoch))
        end_ns = marks.now_ns()
        marks.interval("checkpoint", -1, begin_ns, end_ns)  # it is no step's
        self.count += 1
        self.spent_ns += end_ns - begin_ns
        self.cpu_s += time.process_time() - begin_cpu_s

    def said(self):
        """How many there were, what one took, and how large the last one was; nothing where there were none."""
        if not self.count:
            return {}
        mean_s = self.spent_ns / 1e9 / self.count
        return {"checkpoints": self.count, "checkpoint_s": mean_s, "checkpoint_bytes": self.bytes}

    def remove(self):
        """They were written to be written: nobody goes on from them."""
        if self._every:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self, state):
        if not os.path.isdir(self._folder):
            os.mkdir(self._folder, 0o700)  # ours, and nobody's before us
        path = os.path.join(self._folder, "same.pt" if self._same else "{}.pt".format(state["epoch"]))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)  # without O_TRUNC: in place
        with os.fdopen(descriptor, "wb") as file:
            torch.save(state, file)
            file.truncate()
            self.bytes = file.tell()
