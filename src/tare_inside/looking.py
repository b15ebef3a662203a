"""What is in a folder of data: which format by its looks, how much of it, what is broken, and who made it."""

import os

from tare_inside import making, manifest, named


def look(folder):
    """What is there, as plain data; `problems` are sentences that name the file, and none means that all is well."""
    if not os.path.isdir(folder):
        raise ValueError("{}: there is no such folder.".format(folder))
    said = {"folder": folder, "synthetic": is_synthetic(folder)}
    names = [name for name in named.names("data") if named.find("data", name).recognise(folder)]
    if not names:
        known = ", ".join(named.find("data", name).FORMAT for name in named.names("data"))
        return dict(said, problems=_of_the_making(folder) + ["{}: there is nothing in it of {}.".format(folder, known)])
    said.update(_described(folder, names[0]))
    said["problems"] = _of_the_making(folder) + said["problems"]
    return said


def is_synthetic(folder):
    """Whether tare made it, or has begun to."""
    return any(os.path.exists(os.path.join(folder, name)) for name in (manifest.MANIFEST, manifest.CLAIM, manifest.LOG))


def _described(folder, name):
    data = named.find("data", name)
    said = {"data": name, "title": data.TITLE, "format": data.FORMAT, "real_items": data.ITEMS}
    sentence = making.missing(data)
    if sentence is not None:
        return dict(said, problems=[sentence])
    try:
        return dict(said, **data.describe(folder))
    except (OSError, ValueError) as problem:
        return dict(said, problems=[str(problem)])


def _of_the_making(folder):
    """What the manifest knows better: whether it was finished, and whether each file is as it was made."""
    if not is_synthetic(folder):
        return []
    listed = manifest.listing(folder)
    if listed is None:
        asked = manifest.read_json(os.path.join(folder, manifest.CLAIM)) or {}
        words = ["tare data make", asked.get("data", "NAME")]
        words += ["--{} {}".format(option, asked[key]) for key, option in _OPTIONS if key in asked]
        return ["{}: it is not finished: `{} {}` goes on with it.".format(folder, " ".join(words), folder)]
    return [
        "{}: {}.".format(os.path.join(folder, name), _difference(folder, name, row))
        for name, row in sorted(listed.items())
        if not manifest.fits(folder, name, row, read_through=True)
    ]


_OPTIONS = (("count", "items"), ("seed", "seed"))


def _difference(folder, name, row):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return "it is missing"
    there = os.path.getsize(path)
    return "it has {} bytes instead of {}".format(there, row[1]) if there != row[1] else "it has been changed"
