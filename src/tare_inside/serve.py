"""Runs a server beside its load: `python serve.py ORDER -- COMMAND...`, ORDER being JSON.

The server is started, waited for (its port, a path that answers, or a line that it prints), and `listens` is made in
the work folder; where there are other tenants, when all of them are ready (`launch.py`). Under load its threads are
counted now and then. When `done` appears there, it is asked to stop (SIGTERM) and, after `grace_s`, killed. Exit code:
0 where the server ran until it was stopped; its own, or 1, where it did not.
"""

import collections
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
_LAST_LINES = 6  # of the server's output, for whoever asks why it failed


class Server(object):
    """The server's process; what it prints is passed on, and looked through for a line."""

    def __init__(self, argv, line):
        self._line, self.printed = line, threading.Event()
        self._last = collections.deque(maxlen=_LAST_LINES)
        self.child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        self._reader = threading.Thread(target=self._pass_on)
        self._reader.daemon = True
        self._reader.start()

    def _pass_on(self):
        for line in iter(self.child.stdout.readline, b""):
            if self._line is not None and self._line in line.decode("utf-8", "replace"):
                self.printed.set()
            os.write(1, line)
            if line.strip():
                self._last.append(line.decode("utf-8", "replace").rstrip())

    def failed(self, why):
        """Report it on stderr, after the last lines that the server printed, with the last of them beside it."""
        last = list(self._last)
        told = " Its last line: {}".format(last[-1].strip()[:150]) if last else " It printed nothing."
        sys.stderr.write("\n".join(last + ["tare: the server {}.{}\n".format(why, told)]))
        return self.child.returncode or 1

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


def listens_on(session):
    """The ports on which processes of a session listen, as far as that can be read."""
    files, ports = set(), set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(pid)) == session:
                folder = "/proc/{}/fd/".format(pid)
                files.update(os.readlink(folder + number) for number in os.listdir(folder))
        except OSError:
            pass
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(name) as table:
                rows = [row.split() for row in table]
        except OSError:
            continue
        listening = [row for row in rows if row[3] == "0A" and "socket:[{}]".format(row[9]) in files]
        ports.update(int(row[1].rpartition(":")[2], 16) for row in listening)
    return sorted(ports)


def answer_of(port, path=None):
    """The code with which a GET of the path is answered, 1 without a path; 0 where nothing answers."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            if path is None:
                return 1
            request = "GET {} HTTP/1.0\r\nHost: localhost\r\n\r\n".format(path)
            connection.sendall(request.encode("ascii"))
            words = connection.makefile("rb").readline().split()
            return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
    except OSError:
        return 0


def main(arguments):
    order, meets_in = json.loads(arguments[0]), os.environ.pop("TARE_BARRIER", None)
    folder, ready = order["folder"], order.get("ready")
    path = ready if ready and ready.startswith("/") else None
    line = ready if ready and path is None else None
    if order.get("cores"):
        mine = os.sched_getaffinity(0) & set(order["cores"])
        if mine:
            os.sched_setaffinity(0, mine)
    if answer_of(order["port"]):
        sys.stderr.write(
            "tare: something listens on port {} already: stop it, or set another `port`.\n".format(order["port"])
        )
        return 1
    begin = time.time()
    server = Server(arguments[2:], line)

    def is_ready():
        return server.printed.is_set() if line is not None else 0 < answer_of(order["port"], path) < 400

    while not is_ready():
        if server.child.poll() is not None:
            server.stop(0)
            return server.failed("ended with code {} before it was ready".format(server.child.returncode))
        if time.time() - begin > order["start_s"]:
            why = _not_ready(server.child.pid, order["port"], path, line)
            server.stop(order["grace_s"])
            server.failed("was not ready {:g} s after its start: {}".format(order["start_s"], why))
            return 1
        time.sleep(_LOOK_EVERY_S)
    ready_s = time.time() - begin
    if meets_in is not None:
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        import launch

        launch.wait_for_the_others(meets_in)
    open(os.path.join(folder, LISTENS), "w").close()
    threads, counted = 0, 0.0
    while not os.path.exists(os.path.join(folder, DONE)):
        if time.time() - counted > _COUNT_EVERY_S:
            threads, counted = max(threads, threads_of(server.child.pid)), time.time()
        if server.child.poll() is not None:
            server.stop(0)
            return server.failed("ended with code {} under load".format(server.child.returncode))
        time.sleep(_LOOK_EVERY_S)
    stop_s = server.stop(order["grace_s"])
    with open(os.path.join(folder, SERVED), "w") as file:
        report = {"ready_s": ready_s, "stop_s": stop_s, "code": server.child.returncode}
        report.update({"cores": len(os.sched_getaffinity(0)), "threads": threads or None})
        json.dump(report, file)
    return 0


def _not_ready(session, port, path, line):
    code, ports = answer_of(port, path), listens_on(session)
    if line is not None:
        why = "it had printed no line with {!r}".format(line)
    elif path is not None and code:
        why = "GET {} on port {} was answered with {}".format(path, port, code)
    else:
        why = "no answer on port {}".format(port)
    if ports and port not in ports:
        why += "; it listens on port {}: is `port` another, or is it still loading (`start`)?".format(
            " and ".join(map(str, ports))
        )
    return why


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
