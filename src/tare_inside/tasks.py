"""What answers requests: a network on data in memory, or one of the applications, opened as a job says."""

import importlib.util
import os
import sys

from tare_inside import named, weights

DATA_SEED = 0  # the data are the same in every trial; a trial's seed changes the weights
DISTINCT = 8  # batches in memory, unless they are large: none of them stays in a cache of the CPU
MOST_BYTES = 256 << 20
SETTLING = 4  # images; enough for statistics


class InMemory(object):
    """A network and images that lie in memory, normalised: nothing is left to do but to compute."""

    def __init__(self, images, infer):
        self._images = images
        self.infer = infer
        self.items = len(images)

    def pre(self, items):
        """The images of a request; neighbours are taken as they lie, without a copy."""
        if isinstance(items, range):
            return (self._images[items.start : items.stop],), None
        return (self._images[list(items)],), None

    def post(self, outputs, known):
        """The outputs themselves, wherever they lie: bringing them back is not part of the papers' figure."""
        return outputs

    def answers(self, outputs):
        """The five likeliest classes of each image."""
        return outputs.float().cpu().topk(min(5, outputs.shape[-1])).indices.tolist()


def in_memory(job):
    """(the task, where its tensors are wanted) of a network alone."""
    model = named.find("models", job["model"])
    if model.KIND != "image":
        raise ValueError(
            "{} takes {}: only networks for images run on data in memory.".format(job["model"], model.KIND)
        )
    side = job.get("pixels")
    shape = model.INPUT if side is None else (model.INPUT[0], side, side)
    images = weights.noise((_count(job["batch"], shape),) + tuple(shape), DATA_SEED)
    network = weights.seeded(job["model"], job["seed"], (images[:SETTLING],), job["scale"])
    infer, tensors_on = open_backend(network, (images[: job["batch"]],), job)
    if tensors_on == "cuda":
        images = images.pin_memory()
    return InMemory(images, infer), tensors_on


def _count(batch, shape):
    item_bytes = 4
    for size in shape:
        item_bytes *= size
    return batch * max(1, min(DISTINCT, MOST_BYTES // (item_bytes * batch)))


def application(job):
    """(the task, where its tensors are wanted) of an application on data on disk."""
    module = named.find("applications", job["application"])
    data = named.find("data", module.DATA)
    problem = _missing(data) or data.obstacle(job["data_path"], job["batch"] * getattr(module, "LINES_AN_ITEM", 1))
    if problem is not None:
        raise ValueError(problem)
    return module.prepare(job["data_path"], job)


def _missing(data):
    """The modules beside torch that reading the data needs and that are not here, as a sentence."""
    absent = [name for name in getattr(data, "NEEDS", ()) if importlib.util.find_spec(name) is None]
    if not absent:
        return None
    return "{} has no {}, which is needed to read {}.".format(sys.executable, " and no ".join(absent), data.TITLE)


def open_backend(network, example, job):
    """(the function that runs the network, where it wants its tensors), by the back end that the job names."""
    options = {name: job.get(name) for name in ("device", "threads", "any_batch", "free")}
    options["folder"] = os.path.dirname(os.path.abspath(job["outcome"]))
    return named.find("backends", job["backend"]).opened(network, example, options)


def joined(task, parts):
    """Items that were made ready one by one, as a batch: (tensors, what `post` will want to know)."""
    if hasattr(task, "joined"):
        return task.joined(parts)
    import torch

    tensors = zip(*(tensors for tensors, _ in parts))
    return tuple(torch.cat(each) for each in tensors), [known for _, each in parts for known in each]
