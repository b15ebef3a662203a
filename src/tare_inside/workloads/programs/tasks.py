"""What answers requests: a network on data in memory, or one of the applications, opened as a job says.

A network with random weights that depend on the seed alone, and that behaves as a trained one does.

Random weights do not change what a network costs, with one exception: without statistics in its batch normalisation
the signal dies out from layer to layer, every input gives the same answer, and a digest of answers would say nothing.
So the statistics are taken from one pass over seeded noise, as training would have taken them from the data.

What one request is put through, and where it is marked.

A task has `pre(items)`, which gives the network's tensors and whatever `post` will want to know, `infer(*tensors)`,
and `post(outputs, known)`, which gives the answers. A place brings tensors to the device and waits for it.
"""

import importlib.util
import inspect
import os
import sys
import threading
from collections import namedtuple

import torch

from tare_inside import marks, named


def seeded(model, seed, example, scale=1.0, **options):
    """The network called `model`, ready for inference; `example` is a tuple of tensors like those it will get."""
    torch.manual_seed(seed)
    build = named.find("models", model).build
    if scale != 1.0:
        if "scale" not in inspect.signature(build).parameters:
            raise ValueError("{} comes in one size only: leave `scale` out.".format(model))
        options["scale"] = scale
    network = build(**options).eval()
    settle(network, example)
    return network


def settle(network, example):
    """Give batch normalisation the statistics of one pass over the example."""
    layers = [layer for layer in network.modules() if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)]
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 1.0  # of this pass alone, nothing of the zeros and ones that it starts with
        layer.train()
    with torch.no_grad():
        network(*example)
    for layer, momentum in zip(layers, momenta):
        layer.momentum = momentum
        layer.eval()


def noise(shape, seed):
    """Numbers that look like a normalised image, the same for the same seed."""
    chance = torch.Generator()
    chance.manual_seed(seed)
    return torch.randn(shape, generator=chance)


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
    batch_bytes = 4 * job["batch"]
    for size in shape:
        batch_bytes *= size
    count = job["batch"] * max(1, min(DISTINCT, MOST_BYTES // batch_bytes))
    images = noise((count,) + tuple(shape), DATA_SEED)
    network = seeded(job["model"], job["seed"], (images[:SETTLING],), job["scale"])
    infer, tensors_on = open_backend(network, (images[: job["batch"]],), job)
    if tensors_on == "cuda":
        images = images.pin_memory()
    return InMemory(images, infer), tensors_on


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


NETWORK = ("fetch", "copy", "inference", "compute", "step")
BESIDE_GPU = ("host_fetch", "host_copy", "host_inference", "host_compute", "host_step")  # timing: async
APPLICATION = ("fetch", "pre_process", "copy", "inference", "compute", "post_process", "step")
MOST_MARKS = 2 * len(APPLICATION)  # of one request


def network_alone(task, place, write):
    """A network on data in memory: taking them is part of `fetch`, and the step ends with the network's outputs."""
    pre, infer, post = task.pre, task.infer, task.post
    move, wait, tick, now = place.move, place.wait, place.tick, marks.now_ns

    def handle(step, items, since_ns):
        tensors, known = pre(items)
        t1 = now()
        tick()
        tensors = move(tensors)
        wait()
        t2 = now()
        tick()
        outputs = infer(*tensors)
        tick()
        wait()
        t3 = now()
        write(step, since_ns, t1, t1, t2, t2, t3, t2, t3, since_ns, t3)
        return post(outputs, known)

    return handle


def whole_application(task, place, write):
    """From the request's files or lines to the answer as a person would read it; `fetch` is the wait for a thread."""
    pre, infer, post = task.pre, task.infer, task.post
    move, wait, now = place.move, place.wait, marks.now_ns

    def handle(step, items, since_ns):
        t1 = now()
        tensors, known = pre(items)
        t2 = now()
        tensors = move(tensors)
        wait()
        t3 = now()
        outputs = infer(*tensors)
        wait()
        t4 = now()
        answers = post(outputs, known)
        t5 = now()
        write(step, since_ns, t1, t1, t2, t2, t3, t3, t4, t3, t4, t4, t5, since_ns, t5)
        return answers

    return handle


def shared_group(names, room):
    """As `marks.group`, for several threads."""
    write, one_at_a_time = marks.group(names, room), threading.Lock()

    def write_shared(step, *times_ns):
        with one_at_a_time:
            write(step, *times_ns)

    return write_shared


# `move` takes and gives a tuple of tensors; `wait` waits until the device has done its work; `tick` records an event
# there. On a CPU the last two do nothing.
Place = namedtuple("Place", "move wait tick")


def _nothing():
    """What there is to wait for, and to record, on a CPU."""


def place(tensors_on, device, tick=None, wait=True):
    """`tensors_on` is where the back end wants its tensors, `device` where it computes."""
    wanted = torch.device(tensors_on)

    def move(tensors):
        return tuple(tensor.to(wanted, non_blocking=True) for tensor in tensors)

    def wait_for_stream():
        """Only what this thread asked for: other requests in flight are none of its business."""
        torch.cuda.current_stream().synchronize()

    move = (lambda tensors: tensors) if tensors_on == "cpu" else move
    return Place(move, wait_for_stream if device == "cuda" and wait else _nothing, tick or _nothing)


def without_gradients(work):
    """`work`, to be run in a thread: nothing is kept for a backward pass."""
    mode = getattr(torch, "inference_mode", torch.no_grad)

    def run():
        with mode():
            work()

    return run


def in_own_stream(work):
    """As `without_gradients`, with a CUDA stream of the thread's own, so that requests can overlap on the GPU."""

    def run():
        with torch.cuda.stream(torch.cuda.Stream()):
            work()

    return without_gradients(run)
