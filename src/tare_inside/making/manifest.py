"""What says that a data set on disk is whole: every file with its size and sha256, written after all of them.

making.json       while it is being made: what, so that no one makes another one into the same folder
making.log        while it is being made: the units that are there
manifest.files    a line a file: name, unit, size, sha256
manifest.json     last: what it is, and the sha256 of manifest.files
"""

import hashlib
import json
import os

MANIFEST, LISTING, LOG, CLAIM = "manifest.json", "manifest.files", "making.log", "making.json"

_HALF = ".half"
_READ_WHOLE_BYTES = 64 << 20  # up to this size a set is read through before it is taken as it is; else sizes must do


def claim(folder, reported):
    """Mark the folder as one where this is being made; ValueError where it holds something else already."""
    for name in (CLAIM, MANIFEST):
        there = read_json(os.path.join(folder, name))
        if there is None:
            continue
        known = {key: there[key] for key in reported if key in there}
        if dict(reported, **known) != reported:
            words = ", ".join("{} {}".format(key, known[key]) for key in sorted(known))
            raise ValueError(
                "{}: it holds another data set already ({}). Name another folder, or remove it.".format(folder, words)
            )
        return
    if os.path.isdir(folder) and os.listdir(folder):
        raise ValueError(
            "{}: it is not empty, and tare did not make what is in it. Name another folder.".format(folder)
        )
    os.makedirs(folder, exist_ok=True)
    write_file(folder, CLAIM, json_line(reported))


def listing(folder):
    """From name to (unit, size, sha256) for each file that the manifest knows; None if that cannot be trusted."""
    manifest = read_json(os.path.join(folder, MANIFEST)) or {}
    try:
        with open(os.path.join(folder, LISTING), "rb") as file:
            content = file.read()
    except OSError:
        return None
    if hashlib.sha256(content).hexdigest() != manifest.get("sha256"):
        return None
    rows = (line.rsplit("\t", 3) for line in content.decode().splitlines())
    return {name: (int(unit), int(size), digest) for name, unit, size, digest in rows}


def fitting(folder, listed):
    """The names of those files that are as listed: their sizes and, unless that is a lot, what is in them."""
    read_through = sum(size for _, size, _ in listed.values()) <= _READ_WHOLE_BYTES
    return {name for name, row in listed.items() if fits(folder, name, row, read_through)}


def fits(folder, name, row, read_through):
    """Whether a file is as listed: its size, and what is in it if it is to be read through."""
    _, size, digest = row
    path = os.path.join(folder, name)
    try:
        return os.path.getsize(path) == size and (not read_through or file_digest(path) == digest)
    except OSError:
        return False


def seal(folder, reported, rows):
    """Say that the data set is whole: rows of (name, unit, size, sha256)."""
    content = "".join("{}\t{}\t{}\t{}\n".format(*row) for row in sorted(rows)).encode()
    sweep(folder)
    write_file(folder, LISTING, content)
    manifest = dict(
        reported, files=len(rows), bytes=sum(row[2] for row in rows), sha256=hashlib.sha256(content).hexdigest()
    )
    if manifest["bytes"] > _READ_WHOLE_BYTES:
        os.sync()  # later runs look at sizes only: what is in the files must be on the disk before it is said to be
    write_file(folder, MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode() + b"\n")
    forget(os.path.join(folder, LOG))


def file_digest(path):
    """The sha256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def read_json(path):
    """What a JSON file holds; None if there is none, or half of one."""
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def json_line(data):
    """One line of JSON, as bytes."""
    return json.dumps(data, sort_keys=True).encode() + b"\n"


def write_file(folder, name, content):
    """Write a file under another name and rename it: whatever has the right name is whole."""
    path = os.path.join(folder, name)
    half = "{}.{}{}".format(path, os.getpid(), _HALF)
    try:
        with _created(half) as file:
            file.write(content)
        os.rename(half, path)
    except BaseException:
        forget(half)
        raise


def forget(path):
    """Remove a file, if it is there."""
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        pass


def _created(path):
    try:
        return open(path, "wb")
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "wb")


def sweep(folder):
    """Remove what killed runs left half written."""
    for top, _, names in os.walk(folder):
        for name in names:
            if name.endswith(_HALF) and not os.path.isdir("/proc/" + name.split(".")[-2]):
                forget(os.path.join(top, name))
