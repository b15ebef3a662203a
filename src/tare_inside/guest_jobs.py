"""Jobs in a virtual machine: started in a control group of their own, and ended with all of it."""

import contextlib
import os
import signal
import subprocess

JOBS = "/sys/fs/cgroup/tare.jobs"
HERE = "/run/tare"  # in the guest's memory


def new_group(number):
    """A group for one job; None where the guest has none."""
    if not os.path.isdir(JOBS):
        return None
    group = "%s/%d" % (JOBS, number)
    os.mkdir(group)
    return group


class Job:
    """A process that the device asked for, and what is left of its output."""

    def __init__(self, number, child, group):
        self.number = number
        self.pid = child.pid
        self.group = group
        self.pipes = {child.stdout.fileno(): "out", child.stderr.fileno(): "err"}
        self.sent = {"out": 0, "err": 0}
        self.truncated = False
        self.ended_s = None
        self._child = child  # its pipes stay open as long as it is known here

    def close(self):
        self._child.returncode = 0  # it was reaped by us: subprocess must not look for it
        for pipe in (self._child.stdout, self._child.stderr):
            pipe.close()


def started(header, data, group):
    with _nameless(data) as stdin:
        return subprocess.Popen(
            header["argv"],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=header["env"],
            cwd=header["cwd"],
            start_new_session=True,
            preexec_fn=lambda: _enter(group),
        )


def _nameless(data):
    """What a job reads, as a file without a name; the module that makes such files takes seconds to load here."""
    path = HERE + "/stdin"
    file = open(path, "w+b")  # noqa: SIM115 (the caller closes it)
    os.unlink(path)
    file.write(data)
    file.seek(0)
    return file


def _enter(group):
    """In the child: into its group, and with the memory killer's usual eye on it."""
    if group is not None:
        tell(group + "/cgroup.procs", "0")
    with contextlib.suppress(OSError):  # who is not root may not make it less likely
        tell("/proc/self/oom_score_adj", "0")


def kill(job):
    """All of its group; without groups, its session's processes."""
    if job.group is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        return
    try:
        tell(job.group + "/cgroup.kill", "1")
    except OSError:  # Linux before 5.14
        with open(job.group + "/cgroup.procs") as procs:
            for pid in procs.read().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def remove_group(group):
    if group is not None:
        with contextlib.suppress(OSError):  # what a job left behind keeps its group
            os.rmdir(group)


def exit_code(status):
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def oom_kills():
    """How often this kernel killed for want of memory; None where it does not say."""
    try:
        with open("/proc/vmstat") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), None)
    except OSError:
        return None


def tell(path, text):
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)
