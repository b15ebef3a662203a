"""Does nothing for a while, and marks that while as one step: `python idle.py SETTLE_S SECONDS LOG_PERIOD_S`.

With a period it logs meanwhile, as the scripts do that people run beside their training: it reads what /proc says of
processors, memory and disks, and forgets it. What such a script costs is the difference between the two.
"""

import sys
import time

from tare_inside import marks

LOGGED = ("/proc/stat", "/proc/meminfo", "/proc/diskstats", "/proc/net/dev", "/proc/loadavg")


def rest(settle_s, seconds, period_s):
    """Sleep until what came before has died away, then rest on; only the second part is marked."""
    time.sleep(settle_s)
    marks.begin("step", 0)
    if period_s > 0:
        log(seconds, period_s)
    else:
        time.sleep(seconds)
    marks.end("step", 0)


def log(seconds, period_s):
    """Read the files once a period, on a fixed grid."""
    begin_s = time.monotonic()
    due_s = begin_s
    while due_s - begin_s < seconds:
        time.sleep(max(0.0, due_s - time.monotonic()))
        for path in LOGGED:
            look(path)
        due_s += period_s
    time.sleep(max(0.0, begin_s + seconds - time.monotonic()))


def look(path):
    """Read a file as a logging script does; one that is not there is none."""
    try:
        with open(path) as file:
            return len([line.split() for line in file])
    except OSError:
        return 0


def main(arguments):
    if len(arguments) != 3:
        sys.stderr.write("usage: python idle.py SETTLE_S SECONDS LOG_PERIOD_S\n")
        return 2
    rest(*[float(argument) for argument in arguments])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
