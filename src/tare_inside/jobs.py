"""What the engine and the agent on a lean device both do for a job: its variables, and the end of its folder."""

import contextlib
import itertools
import os
import re
import stat

BUILT_IN = frozenset({"PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"})
"""Those of a built-in workload: where programs and libraries are found."""

LEFT_OUT = re.compile(
    r"PWD|OLDPWD|SHLVL|_|HOSTNAME|container"  # a shell's and an engine's own, which differ from place to place
    r"|TARE_\w+|PYTEST_CURRENT_TEST"  # ours; the other differs from run to run
    r"|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|XDG_RUNTIME_DIR|XDG_SESSION_\w+|DBUS_\w+|SSH_\w+|GPG_\w+"  # of a session
    r"|SUDO_\w+|INVOCATION_ID|JOURNAL_STREAM|NOTIFY_SOCKET|LISTEN_\w+|SYSTEMD_\w+|TMUX\w*|STY"
    r"|DOCKER_(?:HOST|CONTEXT|CONFIG|CERT_PATH|TLS|TLS_VERIFY)|CONTAINER_HOST|BASH_FUNC_.*"
)
"""Those of a user's own command that it does not get: they name what no container can reach, or differ by place."""

SECRETS = re.compile(r"KEY|TOKEN(?!IZER)|SECRET|PASS|CRED|COOKIE|AUTH|SESSION", re.IGNORECASE)
"""A variable with such a name holds a secret: a job is given it, and no record has its value."""


def users_own(name: str) -> bool:
    """Whether a user's own command is given this variable."""
    return not LEFT_OUT.fullmatch(name)


def may_pass(name: str) -> bool:
    """Whether this variable may go from a device to the one that drives it; a secret stays where it is."""
    return name in BUILT_IN or (users_own(name) and not SECRETS.search(name))


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path, dir_fd=None):
    """The folder and all in it; a link is not followed, and what cannot be removed stays: look whether it is gone.

    `shutil.rmtree` calls itself for each folder in a folder (before Python 3.13) and keeps a descriptor open for each,
    so that a thousand folders in one another could not be removed, neither by the run nor by `tare device restore`.
    Here a folder in a folder is moved up to the top first: nothing is ever deeper than two, whatever a workload made.
    """
    with contextlib.suppress(OSError), _opened(path, dir_fd) as top:
        names = ("%d.tare" % number for number in itertools.count())
        todo = os.listdir(top)
        while todo:
            name = todo.pop()
            with contextlib.suppress(OSError):
                if not _gone(name, top):
                    with _opened(name, top) as folder:
                        todo += _moved(folder, top, names)
                    os.rmdir(name, dir_fd=top)
    with contextlib.suppress(OSError):
        os.rmdir(path, dir_fd=dir_fd)


@contextlib.contextmanager
def _opened(name, parent):
    folder = os.open(name, _FOLDER, dir_fd=parent)
    try:
        if stat.S_IMODE(os.fstat(folder).st_mode) & 0o700 != 0o700:
            with contextlib.suppress(OSError):  # of another user
                os.fchmod(folder, 0o700)
        yield folder
    finally:
        os.close(folder)


def _gone(name, parent):
    """Whether that was no folder, or an empty one, and is no more."""
    try:
        os.unlink(name, dir_fd=parent)
    except OSError:  # a folder: EISDIR, or EPERM
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError:
            return False
    return True


def _moved(folder, top, names):
    """Remove what is in this folder, and move the folders in it to the top; their names there."""
    moved = []
    for name in os.listdir(folder):
        if not _gone(name, folder):
            with contextlib.suppress(OSError), _opened(name, folder):  # something is mounted there; rights to move it
                moved.append(_renamed(name, folder, top, names))
    return moved


def _renamed(name, folder, top, names):
    for new in names:  # a workload may have used such names: an empty folder in place of ours tells
        try:
            os.mkdir(new, 0o700, dir_fd=top)
        except FileExistsError:
            continue
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
        return new
