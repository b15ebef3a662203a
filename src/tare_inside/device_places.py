"""Where tare keeps its things on a device, as `tare.parts.state` and `tare.trial` have it."""

import os
import re

FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def state_dir():
    """The engine on this device keeps its things there."""
    if os.environ.get("TARE_STATE"):
        return os.path.abspath(os.environ["TARE_STATE"])
    if os.geteuid() == 0:
        return "/var/lib/tare"
    return os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "tare")


def lock_dir():
    if os.environ.get("TARE_LOCK_DIR"):
        return os.path.abspath(os.environ["TARE_LOCK_DIR"])
    return "/run/lock/tare" if os.geteuid() == 0 else state_dir()


def shared_folder():
    """The folder whose lock is between the runs of different users; None where these locks are set apart."""
    if os.environ.get("TARE_LOCK_DIR"):
        return None
    found = [path for path in ("/run/lock", "/run", "/") if os.path.isdir(path) and os.access(path, os.R_OK)]
    return found[0] if found else None


def copies_dir():
    """Where a controller puts what it sends here."""
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tare")


def claims_dir():
    return os.path.join(state_dir(), "fleet", "claims")


def store_dir(name):
    return os.path.join(state_dir(), "fleet", "stores", plain(name))


def plain(name):
    """A name that is safe as a folder's: it came from elsewhere."""
    if not FOLDER_NAME.fullmatch(name):
        raise ValueError("%r is no name for a folder" % name)
    return name
