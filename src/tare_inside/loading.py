"""The data of a training job: opened, looked at, and put behind a DataLoader."""

import inspect

import torch
from torch.utils.data import DataLoader

from tare_inside import named

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
    asked = job.get("steps_per_epoch")
    problem = data.obstacle(job["data_path"], job["batch"] * (asked or 1))
    if problem is not None:
        raise ValueError(problem)
    dataset = data.Dataset(job["data_path"], **_view(job, data, model))
    if job.get("source") == "memory":
        dataset = Kept(dataset)
    _check_shape(job, dataset[0][0], model)
    return dataset, asked or len(dataset) // job["batch"], _classes(job, dataset)


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
    there, asked = getattr(dataset, "classes", None), job.get("classes")
    if asked is not None and there is not None and asked < there:
        raise ValueError(
            "`classes` is {}, and {} has labels of {} classes: make it {} or more, or leave it out.".format(
                asked, job["data_path"], there, there
            )
        )
    return asked or there


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
        pin_memory=bool(job.get("pin")),
        **options,
    )
