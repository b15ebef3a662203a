"""Runs a server beside its load: `python serve.py ORDER -- COMMAND...`, ORDER being JSON.

The server is started, waited for (its port, a path that answers, or a line that it prints), and `listens` is made in
the work folder; where there are other tenants, when all of them are ready (`launch.py`). Under load its threads are
counted now and then. When `done` appears there, it is asked to stop (SIGTERM) and, after `grace_s`, killed. Exit code:
0 where the server ran until it was stopped; its own, or 1, where it did not.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

LISTENS, DONE, SERVED = "listens", "done", "served.json"
_LOOK_EVERY_S = 0.005
_COUNT_EVERY_S = 0.25


class Server(object):
    """The server's process; what it prints is passed on, and looked through for a line."""

    def __init__(self, argv, line):
        self._line, self.printed = line, threading.Event()
        self.child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        self._reader = threading.Thread(target=self._pass_on)
        self._reader.daemon = True
        self._reader.start()

    def _pass_on(self):
        for line in iter(self.child.stdout.readline, b""):
            if self._line is not None and self._line in line.decode("utf-8", "replace"):
                self.printed.set()
            os.write(1, line)

    def stop(self, grace_s):
        """How long it took to stop after it was asked to; None where it had to be killed."""
        begin = time.time()
        self._signal(signal.SIGTERM)
        try:
            self.child.wait(grace_s)
            took_s = time.time() - begin
        except subprocess.TimeoutExpired:
            took_s = None
        self._signal(signal.SIGKILL)  # whatever it started and left
        self.child.wait()
        self._reader.join(1)
        return took_s

    def _signal(self, number):
        try:
            os.killpg(self.child.pid, number)
        except OSError:
            pass


def threads_of(pid):
    """How many threads a process and its children have now; 0 where that cannot be read."""
    try:
        own = len(os.listdir("/proc/{}/task".format(pid)))
    except OSError:
        return 0
    try:
        with open("/proc/{}/task/{}/children".format(pid, pid)) as file:  # not every kernel has it
            children = file.read().split()
    except OSError:
        children = []
    return own + sum(threads_of(child) for child in children)


def answers(port, path=None):
    """Whether something listens on the port; with a path, whether it answers a GET with a code below 400."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            if path is None:
                return True
            request = "GET {} HTTP/1.0\r\nHost: localhost\r\n\r\n".format(path)
            connection.sendall(request.encode("ascii"))
            words = connection.makefile("rb").readline().split()
            return len(words) > 1 and words[1].isdigit() and int(words[1]) < 400
    except OSError:
        return False


def main(arguments):
    order, meets_in = json.loads(arguments[0]), os.environ.pop("TARE_BARRIER", None)
    folder, ready = order["folder"], order.get("ready")
    path = ready if ready and ready.startswith("/") else None
    line = ready if ready and path is None else None
    if order.get("cores"):
        mine = os.sched_getaffinity(0) & set(order["cores"])
        if mine:
            os.sched_setaffinity(0, mine)
    if answers(order["port"]):
        sys.stderr.write(
            "tare: something listens on port {} already: stop it, or set another `port`.\n".format(order["port"])
        )
        return 1
    begin = time.time()
    server = Server(arguments[2:], line)

    def is_ready():
        return server.printed.is_set() if line is not None else answers(order["port"], path)

    while not is_ready():
        if server.child.poll() is not None:
            server.stop(0)
            sys.stderr.write(
                "tare: the server ended with code {} before it was ready.\n".format(server.child.returncode)
            )
            return server.child.returncode or 1
        if time.time() - begin > order["start_s"]:
            server.stop(order["grace_s"])
            wanted = (
                "a line with {!r}".format(line) if line else "{} of port {}".format(path or "an answer", order["port"])
            )
            sys.stderr.write(
                "tare: {:g} s after its start the server had not given {}.\n".format(order["start_s"], wanted)
            )
            return 1
        time.sleep(_LOOK_EVERY_S)
    ready_s = time.time() - begin
    if meets_in is not None:
        _wait_for_the_others(meets_in)
    _make(os.path.join(folder, LISTENS))
    threads, counted = 0, 0.0
    while not os.path.exists(os.path.join(folder, DONE)):
        if time.time() - counted > _COUNT_EVERY_S:
            threads, counted = max(threads, threads_of(server.child.pid)), time.time()
        if server.child.poll() is not None:
            server.stop(0)
            sys.stderr.write("tare: the server ended with code {} under load.\n".format(server.child.returncode))
            return server.child.returncode or 1
        time.sleep(_LOOK_EVERY_S)
    stop_s = server.stop(order["grace_s"])
    with open(os.path.join(folder, SERVED), "w") as file:
        report = {"ready_s": ready_s, "stop_s": stop_s, "code": server.child.returncode}
        report.update({"cores": len(os.sched_getaffinity(0)), "threads": threads or None})
        json.dump(report, file)
    return 0


def _wait_for_the_others(folder):
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import launch

    launch.wait_for_the_others(folder)


def _make(path):
    with open(path, "w"):
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
