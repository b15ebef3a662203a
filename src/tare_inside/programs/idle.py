"""Does nothing for a while, and marks that while as one step: `idle.py SETTLE_S SECONDS LOG_PERIOD_S [CLOCK STATE]`.

With a period it logs meanwhile, as the scripts do that people run beside their training: it reads what /proc says of
processors, memory and disks, and forgets it. What such a script costs is the difference between the two.

With the folder of a clock and the kernel's file of power states the device itself sleeps, to memory, until the clock's
alarm: that is set and read back before, and cleared after it. What is awake is that long before the sleep and after it.
"""

import os
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


def suspend(settle_s, seconds, _period_s, clock, power_state):
    """Sleep to memory. What goes wrong before is reported, and nothing sleeps that no alarm would wake."""
    time.sleep(settle_s)
    os.sync()  # else the kernel does it after the alarm was set, for as long as that takes
    alarm, events = os.path.join(clock, "wakealarm"), os.path.join(os.path.dirname(power_state), "wakeup_count")
    if read(os.path.join(clock, "device", "power", "wakeup")) != "enabled":
        sys.exit("the alarm of %s may not wake the device any more. The device did not sleep." % clock)
    what = "the alarm of %s could not be set" % clock
    try:
        before = read(events)
        due = str(int(read(os.path.join(clock, "since_epoch"))) + int(seconds))
        write(alarm, due)
        try:
            if read(alarm) != due:
                sys.exit("%s: %s was written, and it has %r. The device did not sleep." % (what, due, read(alarm)))
            what = "the kernel refused to suspend the device (its log, `dmesg`, names what kept it awake)"
            write(events, before)  # from now on whatever wakes, also an alarm that came too early, ends the suspending
            marks.begin("step", 0)
            write(power_state, "mem")
            marks.end("step", 0)
            what = "the alarm of %s could not be cleared after the sleep" % clock
        finally:
            write(alarm, "0")
    except OSError as error:
        sys.exit("%s: %s." % (what, error.strerror))
    time.sleep(settle_s)


def read(path):
    with open(path) as file:
        return file.read().strip()


def write(path, text):
    """In one call: a file object would try once more what the kernel refused."""
    file = os.open(path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(file, text.encode("ascii"))
    finally:
        os.close(file)


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
    if len(arguments) not in (3, 5):
        sys.stderr.write("usage: python idle.py SETTLE_S SECONDS LOG_PERIOD_S [CLOCK STATE]\n")
        return 2
    (suspend if arguments[3:] else rest)(*map(float, arguments[:3]), *arguments[3:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
