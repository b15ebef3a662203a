"""Tenants start together: each says that it is ready, and goes on when it is told to.

TARE_BARRIER       the folder in which `ready` is made and `go` is waited for; without it nobody waits
TARE_BARRIER_AT    `launch`: a command that knows nothing of this waits before it is started
"""

import os
import time

_LOOK_EVERY_S = 0.001


def wait(folder=None):
    """Say that everything is prepared, and wait for the others."""
    folder = folder or os.environ.pop("TARE_BARRIER", None)
    if folder is None:
        return
    with open(os.path.join(folder, "ready"), "w"):
        pass
    go = os.path.join(folder, "go")
    while not os.path.exists(go):
        time.sleep(_LOOK_EVERY_S)


def wait_at_launch():
    """Wait before a command is started, if it is not one that waits by itself."""
    if os.environ.pop("TARE_BARRIER_AT", None) == "launch":
        wait()
