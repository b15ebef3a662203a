"""Makes data sets on disk: in parallel, resumable, and the same bytes whatever the number of processes.

A data set is made in units; `maker(count, seed)` of its module in data/ gives a function from the number of a unit
to its files, as pairs of name and bytes. While it is being made a log says what is there already, so that a killed
run goes on where it stopped. What says that a data set is whole comes last: every file with its size and sha256.

    making.json       while it is being made: what, so that no one makes another one into the same folder
    making.log        while it is being made: the units that are there
    manifest.files    a line a file: name, unit, size, sha256
    manifest.json     last: what it is, and the sha256 of manifest.files

Run as a program, it needs nothing installed: `python make.py NAME FOLDER COUNT SEED`.
"""

import errno
import hashlib
import importlib.util
import json
import os
import queue
import random
import subprocess
import sys
import threading
from typing import Any, Dict

if __name__ == "__main__":
    # Run as a file, wherever it lies: what is imported is the package around it, not the files beside it.
    sys.path[0] = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))

from tare_inside import named  # noqa: E402

MANIFEST, LISTING, LOG, CLAIM = "manifest.json", "manifest.files", "making.log", "making.json"

_PACKAGES = {"PIL": "pillow"}
_OPTIONS = (("count", "items"), ("seed", "seed"))
_HALF = ".half"
_READ_WHOLE_BYTES = 64 << 20  # up to this size a set is read through before it is taken as it is; else sizes must do


class Order(object):
    """What is to be made, and where: values only, the same in every process."""

    def __init__(self, data, folder, count, seed):
        self.data, self.folder, self.count, self.seed = data, folder, count, seed
        self.units = named.find("data", data).units(count)

    def said(self):
        """What the manifest says of it; a folder that says something else holds another data set."""
        return {"data": self.data, "count": self.count, "seed": self.seed}

    def items_in(self, units):
        """About how many items so many units have."""
        return self.count * units // self.units


def chance(*words):
    """A source of random numbers that depends on these words alone: one for each item, so that order is nothing."""
    return random.Random("/".join(str(word) for word in words))


def missing(data):
    """Why this Python cannot make the data set, as a sentence; None if it can."""
    absent = [name for name in getattr(data, "NEEDS", ()) if importlib.util.find_spec(name) is None]
    if not absent:
        return None
    packages = " ".join(_PACKAGES.get(name, name) for name in absent)
    return "making {} needs {}: `{} -m pip install {}` puts it there.".format(
        data.TITLE, " and ".join(absent), sys.executable, packages
    )


def make_named(name, folder, count, seed, processes=None, report=None):
    """Make a data set by its name; ValueError for a folder that holds something else, or what this Python lacks."""
    data = named.find("data", name)
    sentence = missing(data)
    if sentence is not None:
        raise ValueError(sentence)
    claim(folder, {"data": name, "count": count, "seed": seed})
    make(name, folder, count, seed, processes, report)
    forget(os.path.join(folder, CLAIM))


def make(name, folder, count, seed, processes=None, report=None):
    """Make what is not there yet; `report(done, count)` hears of it, in items."""
    order = Order(name, folder, count, seed)
    known = read_json(os.path.join(order.folder, MANIFEST)) or {}
    if any(known.get(key, value) != value for key, value in order.said().items()):
        raise ValueError("{}: it holds another data set already. Name another folder.".format(order.folder))
    listed = listing(order.folder)
    whole = fitting(order.folder, listed or {})
    if listed and len(whole) == len(listed):
        return
    os.makedirs(order.folder, exist_ok=True)
    done = _kept(order, listed or {}, whole)
    forget(os.path.join(order.folder, MANIFEST))
    _make_units(order, done, processes or len(os.sched_getaffinity(0)), report or (lambda made, total: None))
    rows = [(name, unit, size, digest) for unit, files in done.items() for name, size, digest in files]
    seal(order.folder, order.said(), rows)


def _make_units(order, done, processes, report):
    """Make what `done` has not, and put it in there; each unit is logged as soon as its files are there."""
    known = [json_line([unit, done[unit]]) for unit in sorted(done)]
    write_file(order.folder, LOG, json_line(order.said()) + b"".join(known))
    todo = [unit for unit in range(order.units) if unit not in done]
    report(order.items_in(len(done)), order.count)
    with open(os.path.join(order.folder, LOG), "ab") as log:
        for unit, files in _made(order, todo, processes):
            done[unit] = files
            log.write(json_line([unit, files]))
            log.flush()
            report(order.items_in(len(done)), order.count)


def _kept(order, listed, whole):
    """Units of earlier runs whose files are all there: {unit: [[name, size, sha256], ...]}."""
    units = {}
    for name, (unit, size, digest) in listed.items():
        units.setdefault(unit, []).append([name, size, digest])
    kept = {unit: files for unit, files in units.items() if all(name in whole for name, _, _ in files)}
    logged = _logged(order)
    rows = {name: (unit, size, digest) for unit, files in logged.items() for name, size, digest in files}
    whole = fitting(order.folder, rows)
    kept.update((unit, files) for unit, files in logged.items() if all(name in whole for name, _, _ in files))
    return kept


def _logged(order):
    """What the log of a run that did not finish says; a torn last line is left out."""
    units = {}
    try:
        with open(os.path.join(order.folder, LOG)) as log:
            lines = log.read().splitlines()
    except OSError:
        return units
    for number, line in enumerate(lines):
        try:
            row = json.loads(line)
        except ValueError:
            break
        if number == 0 and row != order.said():
            raise ValueError(
                "{}: another data set was begun there ({}). Name another folder.".format(order.folder, line)
            )
        if number:
            units[row[0]] = row[1]
    return units


# Making units, here or in other processes. They are started as programs, not forked: whoever asks may have threads.


def _made(order, todo, processes):
    """(unit, files) as units get done, in any order."""
    if processes == 1 or len(todo) < 2:
        files_of = named.find("data", order.data).maker(order.count, order.seed)
        for unit in todo:
            yield unit, made_unit(order.folder, files_of, unit)
        return
    heard, workers, left = queue.Queue(), [], len(todo)
    try:
        for number in range(min(processes, len(todo))):
            workers.append(_started(order, todo[number::processes], heard))
        running = len(workers)
        while running:
            said = heard.get()
            if said is None:
                running -= 1
            elif isinstance(said, dict):
                raise OSError(said["errno"], said["text"], said["file"])
            else:
                left -= 1
                yield said
        if left:
            codes = ", ".join(str(worker.wait()) for worker in workers)
            raise OSError(errno.ECHILD, "a process that made part of it ended early (exit codes {})".format(codes))
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        if left:
            sweep(order.folder)  # of those that were killed while they wrote


def made_unit(folder, files_of, unit):
    """Make one unit and write its files: [[name, size, sha256], ...]."""
    rows = []
    for name, content in files_of(unit):
        write_file(folder, name, content)
        rows.append([name, len(content), hashlib.sha256(content).hexdigest()])
    return rows


def _started(order, units, heard):
    """A process that makes these units; a thread passes on what it says, and None when it ends."""
    argv = [sys.executable, os.path.abspath(__file__), "--worker"]
    worker = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    job = dict(order.said(), folder=order.folder, todo=units)

    def listen():
        try:
            worker.stdin.write(json_line(job))
            worker.stdin.close()
            for line in worker.stdout:
                heard.put(json.loads(line.decode()))
        except (OSError, ValueError):
            pass  # it was ended in the middle of a word; whoever listens counts what is missing
        finally:
            worker.stdout.close()
            heard.put(None)

    threading.Thread(target=listen, daemon=True).start()
    return worker


def _work():
    """What a worker does: read the job, make its units, say each on stdout."""
    job = json.loads(sys.stdin.readline())
    try:
        files_of = named.find("data", job["data"]).maker(job["count"], job["seed"])
        for unit in job["todo"]:
            _say([unit, made_unit(job["folder"], files_of, unit)])
    except BrokenPipeError:
        os._exit(1)  # whoever asked was killed: what is made stays, and there is no one to tell
    except OSError as problem:
        _say({"errno": problem.errno, "text": problem.strerror, "file": problem.filename})
        return 1
    return 0


def _say(data):
    sys.stdout.write(json_line(data).decode())
    sys.stdout.flush()


# The manifest, and the files beside it.


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


def is_whole(folder: str, reported: Dict[str, Any]) -> bool:
    """Whether this very data set is there, finished, with every file as it is listed."""
    known = read_json(os.path.join(folder, MANIFEST)) or {}
    listed = listing(folder)
    if not listed or dict(known, **reported) != known or os.path.exists(os.path.join(folder, CLAIM)):
        return False
    return len(fitting(folder, listed)) == len(listed)


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
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(half, "wb") as file:
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


def sweep(folder):
    """Remove what killed runs left half written."""
    for top, _, names in os.walk(folder):
        for name in names:
            if name.endswith(_HALF) and not os.path.isdir("/proc/" + name.split(".")[-2]):
                forget(os.path.join(top, name))


# What is there already.


def look(folder):
    """What is there, as plain data; `problems` are sentences that name the file, and none means that all is well."""
    if not os.path.isdir(folder):
        raise ValueError("{}: no such folder.".format(folder))
    reported = {"folder": folder, "synthetic": is_synthetic(folder)}
    names = [name for name in named.names("data") if named.find("data", name).recognise(folder)]
    if not names:
        known = ", ".join(named.find("data", name).FORMAT for name in named.names("data"))
        return dict(
            reported, problems=_of_the_making(folder) + ["{}: there is nothing in it of {}.".format(folder, known)]
        )
    reported.update(_described(folder, names[0]))
    reported["problems"] = _of_the_making(folder) + reported["problems"]
    return reported


def is_synthetic(folder):
    """Whether tare made it, or has begun to."""
    return any(os.path.exists(os.path.join(folder, name)) for name in (MANIFEST, CLAIM, LOG))


def _described(folder, name):
    data = named.find("data", name)
    reported = {"data": name, "title": data.TITLE, "format": data.FORMAT, "real_items": data.ITEMS}
    sentence = missing(data)
    if sentence is not None:
        return dict(reported, problems=[sentence])
    try:
        return dict(reported, **data.describe(folder))
    except (OSError, ValueError) as problem:
        return dict(reported, problems=[str(problem)])


def _of_the_making(folder):
    """What the manifest knows better: whether it was finished, and whether each file is as it was made."""
    if not is_synthetic(folder):
        return []
    listed = listing(folder)
    if listed is None:
        requested = read_json(os.path.join(folder, CLAIM)) or {}
        words = ["tare device data make", requested.get("data", "NAME")]
        words += ["--{} {}".format(option, requested[key]) for key, option in _OPTIONS if key in requested]
        return ["{}: it is not finished: `{} {}` continues it.".format(folder, " ".join(words), folder)]
    return [
        "{}: {}.".format(os.path.join(folder, name), _difference(folder, name, row))
        for name, row in sorted(listed.items())
        if not fits(folder, name, row, read_through=True)
    ]


def _difference(folder, name, row):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return "it is missing"
    there = os.path.getsize(path)
    return "it has {} bytes instead of {}".format(there, row[1]) if there != row[1] else "it has been changed"


def failure(problem, folder):
    """A sentence for what went wrong while writing, and what to do."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            "there is no room left in {}. What is made so far stays there: free some space and ask again, "
            "and it goes on.".format(folder)
        )
    return "cannot make the data set in {}: {}".format(folder, problem.strerror or problem)


def main(arguments):
    """Make one data set, or work for a process that does."""
    if arguments == ["--worker"]:
        return _work()
    name, folder, count, seed = arguments
    try:
        make_named(name, folder, int(count), int(seed))
    except OSError as problem:
        sys.stderr.write("tare: {}\n".format(failure(problem, folder)))
        return 1
    except ValueError as problem:
        sys.stderr.write("tare: {}\n".format(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
