"""Which of a user's variables a job is given, for the engine and for the agent on a lean device."""

import re

BUILT_IN = frozenset({"PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"})
"""Those of a built-in workload: where programs and libraries are found."""

LEFT_OUT = re.compile(
    r"PWD|OLDPWD|SHLVL|_|HOSTNAME|container"  # a shell's and an engine's own, which differ from place to place
    r"|TARE_\w+|COVERAGE_PROCESS_\w+|PYTEST_\w+|PYTHONDONTWRITEBYTECODE"  # ours
    r"|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|XDG_RUNTIME_DIR|XDG_SESSION_\w+|DBUS_\w+|SSH_\w+|GPG_\w+"  # of a session
    r"|SUDO_\w+|INVOCATION_ID|JOURNAL_STREAM|NOTIFY_SOCKET|LISTEN_\w+|SYSTEMD_\w+|TMUX\w*|STY"
    r"|DOCKER_\w+|CONTAINER_HOST|BASH_FUNC_.*"
)
"""Those of a user's own command that it does not get: they name what no container can reach, or differ by place."""

SECRETS = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED|COOKIE|AUTH|SESSION", re.IGNORECASE)
"""A variable with such a name holds a secret: a job is given it, and no record has its value."""


def users_own(name: str) -> bool:
    """Whether a user's own command is given this variable."""
    return not LEFT_OUT.fullmatch(name)


def may_pass(name: str) -> bool:
    """Whether this variable may go from a device to the one that drives it; a secret stays where it is."""
    return name in BUILT_IN or (users_own(name) and not SECRETS.search(name))
