"""Makes data sets on disk: in parallel, resumable, and the same bytes whatever the number of processes.

A data set is made in units; `maker(count, seed)` of its module in data/ gives a function from the number of a unit
to its files, as pairs of name and bytes. While it is being made a log says what is there already, so that a killed
run goes on where it stopped; the manifest comes last (see manifest.py).

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

if __name__ == "__main__":
    # Run as a file, wherever it lies: what is imported is the package around it, not the files beside it.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tare_inside import named  # noqa: E402
from tare_inside.making import manifest  # noqa: E402

_PACKAGES = {"PIL": "pillow"}


class Order(object):
    """What is to be made, and where: values only, the same in every process."""

    def __init__(self, data, folder, count, seed, units):
        self.data, self.folder, self.count, self.seed, self.units = data, folder, count, seed, units

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
    manifest.claim(folder, {"data": name, "count": count, "seed": seed})
    data.make(folder, count, seed, processes, report)
    manifest.forget(os.path.join(folder, manifest.CLAIM))


def make(order, processes=None, report=None):
    """Make what is not there yet; `report(done, count)` hears of it, in items."""
    known = manifest.read_json(os.path.join(order.folder, manifest.MANIFEST)) or {}
    if any(known.get(key, value) != value for key, value in order.said().items()):
        raise ValueError("{}: it holds another data set already. Name another folder.".format(order.folder))
    listed = manifest.listing(order.folder)
    fitting = manifest.fitting(order.folder, listed or {})
    if listed and len(fitting) == len(listed):
        return
    os.makedirs(order.folder, exist_ok=True)
    done = _kept(order, listed or {}, fitting)
    manifest.forget(os.path.join(order.folder, manifest.MANIFEST))
    _make_units(order, done, processes or _cores(), report or (lambda made, total: None))
    rows = [(name, unit, size, digest) for unit, files in done.items() for name, size, digest in files]
    manifest.seal(order.folder, order.said(), rows)


def _make_units(order, done, processes, report):
    """Make what `done` has not, and put it in there; each unit is logged as soon as its files are there."""
    known = [manifest.json_line([unit, done[unit]]) for unit in sorted(done)]
    manifest.write_file(order.folder, manifest.LOG, manifest.json_line(order.said()) + b"".join(known))
    todo = [unit for unit in range(order.units) if unit not in done]
    report(order.items_in(len(done)), order.count)
    with open(os.path.join(order.folder, manifest.LOG), "ab") as log:
        for unit, files in _made(order, todo, processes):
            done[unit] = files
            log.write(manifest.json_line([unit, files]))
            log.flush()
            report(order.items_in(len(done)), order.count)


def _kept(order, listed, fitting):
    """Units of earlier runs whose files are all there: {unit: [[name, size, sha256], ...]}."""
    units = {}
    for name, (unit, size, digest) in listed.items():
        units.setdefault(unit, []).append([name, size, digest])
    kept = {unit: files for unit, files in units.items() if all(name in fitting for name, _, _ in files)}
    logged = _logged(order)
    fitting = manifest.fitting(
        order.folder, {name: (unit, size, digest) for unit in logged for name, size, digest in logged[unit]}
    )
    kept.update((unit, logged[unit]) for unit in logged if all(name in fitting for name, _, _ in logged[unit]))
    return kept


def _logged(order):
    """What the log of a run that did not finish says; a torn last line is left out."""
    units = {}
    try:
        with open(os.path.join(order.folder, manifest.LOG)) as log:
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
            manifest.sweep(order.folder)  # of those that were killed while they wrote


def made_unit(folder, files_of, unit):
    """Make one unit and write its files: [[name, size, sha256], ...]."""
    rows = []
    for name, content in files_of(unit):
        manifest.write_file(folder, name, content)
        rows.append([name, len(content), hashlib.sha256(content).hexdigest()])
    return rows


def _started(order, units, heard):
    """A process that makes these units; a thread passes on what it says, and None when it ends."""
    argv = [sys.executable, os.path.abspath(__file__), "--worker"]
    worker = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    job = dict(order.said(), folder=order.folder, todo=units)

    def listen():
        try:
            worker.stdin.write(manifest.json_line(job))
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
    sys.stdout.write(manifest.json_line(data).decode())
    sys.stdout.flush()


def _cores():
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
    return any(os.path.exists(os.path.join(folder, name)) for name in (manifest.MANIFEST, manifest.CLAIM, manifest.LOG))


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
    listed = manifest.listing(folder)
    if listed is None:
        requested = manifest.read_json(os.path.join(folder, manifest.CLAIM)) or {}
        words = ["tare device data make", requested.get("data", "NAME")]
        words += ["--{} {}".format(option, requested[key]) for key, option in _OPTIONS if key in requested]
        return ["{}: it is not finished: `{} {}` continues it.".format(folder, " ".join(words), folder)]
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
