"""Docker and Podman by their command lines, which take the same words."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tare.base.errors import TrialError
from tare.base.host import Completed, Host, OwnDevice
from tare.base.processes import Owner, boot_id, is_root
from tare.drivers.places import PATH
from tare.parts.protocols import Leftover

LABEL = "tare.run"  # the name of the site that a container was made for
_OWNER, _BOOT = "tare.owner", "tare.boot"
UNIX = "unix://"
# Without systemd there is no systemd manager; and one manager everywhere gives the same folders everywhere.
# The log would be in the job's output: a user without subordinate ids is warned at each command.
_PODMAN = ("--cgroup-manager=cgroupfs", "--log-level=fatal")
# A folder that is not there: the user's own settings may add the variables of a proxy to each container.
_NO_SETTINGS = "--config=/run/tare/no-docker-settings"
_KEPT_BY_PODMAN = ("HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
_NO_SUCH = re.compile(r"no such|not known|unable to find", re.IGNORECASE)
_ANSWERS_WITHIN_S = 60.0  # an engine that hangs must not hang tare (faults.md D3p)
_TRANSFER_WITHIN_S = 1800.0
_TIMED_OUT = 124
_WORDS_KEPT = 2000


@dataclass(frozen=True)
class Client:
    """The command line of one engine."""

    host: Host
    program: str  # docker or podman
    options: tuple[str, ...] = ()  # of the program itself, in each call
    settings: tuple[str, ...] = ()  # likewise, but where the user's own are needed: to fetch an image
    socket: str = ""  # of a daemon
    env: Mapping[str, str] = field(default_factory=dict)  # when a job is started
    limit_s: float = _ANSWERS_WITHIN_S

    @property
    def words(self) -> tuple[str, ...]:
        """How each call begins."""
        return (self.program, *self.settings, *self.options)

    def run(self, *words: str, limit_s: float | None = None, stdin: str = "") -> Completed:
        return self.host.run([*self.words, *words], limit_s=limit_s or self.limit_s, stdin=stdin)

    def checked(self, doing: str, *words: str, limit_s: float | None = None, stdin: str = "") -> str:
        """What the command printed; an error says what was being done."""
        done = self.run(*words, limit_s=limit_s, stdin=stdin)
        if done.code == 0:
            return done.out.strip()
        reported = (done.err or done.out).strip()[-_WORDS_KEPT:] or f"it ended with code {done.code}"
        hint = (
            "\nIt was restarted or hangs; look at its log, then `tare device restore` removes what was left behind."
            if done.code == _TIMED_OUT
            else ""
        )
        raise TrialError(f"{self.program} could not {doing}: {reported}{hint}")

    def image(self, name: str) -> Mapping[str, Any] | None:
        """What the engine tells of an image; None where it does not have it."""
        done = self.run("image", "inspect", name)
        if done.code == 0:
            (about,) = json.loads(done.out)
            return dict(about)
        if _NO_SUCH.search(done.err):
            return None
        raise TrialError(f"{self.program} could not look for the image {name}: {done.err.strip()[-_WORDS_KEPT:]}")

    def import_archive(self, archive: Path, name: str, changes: Sequence[str], limit_s: float = 600.0) -> str:
        """Make an image of the files in an archive; returns its id."""
        options = [f"--change={change}" for change in changes]
        return self.checked(f"import {name}", "import", *options, str(archive), name, limit_s=limit_s)

    def export(self, image: str, archive: Path) -> None:
        """Write all files of an image to an archive, by a container that is never started."""
        site = f"tare-export-{secrets.token_hex(4)}"
        marks = [f"--label={name}={value}" for name, value in labels(site).items()]
        doing = f"export the image {image}"
        try:
            made = self.checked(doing, "create", "--network=none", *marks, image, "true", limit_s=_TRANSFER_WITHIN_S)
            self.checked(doing, "export", "--output", str(archive), made, limit_s=_TRANSFER_WITHIN_S)
        finally:
            self.remove(site)

    def leftovers(self) -> list[Leftover]:
        """All containers with tare's label."""
        listed = self.checked("list its containers", *_listed(LABEL)).split()
        rows = json.loads(self.run("container", "inspect", *listed).out or "[]") if listed else []
        return [self._leftover(row["Id"], row["Config"]["Labels"]) for row in rows]

    def _leftover(self, identity: str, given: Mapping[str, str]) -> Leftover:
        what = f"the {self.program.title()} container {identity[:12]}"
        return Leftover(given[LABEL], what, given.get(_OWNER, ""), given.get(_BOOT, ""))

    def remove(self, site: str) -> bool:
        """Remove the containers that carry the label of this site; one that only has the name is someone else's."""
        doing = f"remove the container {site}"
        listed = self.checked(doing, *_listed(f"{LABEL}={site}")).split()
        at_once = ["--time=0", "--ignore"] if self.program == "podman" else []
        for identity in listed:
            done = self.run("rm", "--force", "--volumes", *at_once, identity)
            if done.code != 0 and not _NO_SUCH.search(done.err):
                raise TrialError(f"{self.program} could not {doing}: {done.err.strip()[-_WORDS_KEPT:]}")
        return bool(listed)


def _listed(label: str) -> tuple[str, ...]:
    return ("ps", "--all", "--quiet", "--no-trunc", f"--filter=label={label}")


def labels(site: str) -> dict[str, str]:
    """What a container of an engine is found by after a crash."""
    return {LABEL: site, _OWNER: str(Owner.me()), _BOOT: boot_id()}


def docker(host: Host, socket: str, limit_s: float = _ANSWERS_WITHIN_S) -> Client:
    """The Docker engine that answers at this socket."""
    env = {"PATH": _path(host), "HOME": "/root"}
    return Client(host, "docker", (f"--host={UNIX}{socket}",), (_NO_SETTINGS,), socket=socket, env=env, limit_s=limit_s)


def podman(host: Host, *options: str) -> Client:
    """Podman; without root its containers are where the user's variables say."""
    words = (*_PODMAN, *options)
    if is_root(host) or not isinstance(host, OwnDevice):
        return Client(host, "podman", words, env={"PATH": _path(host), "HOME": "/root"})
    kept = {name: os.environ[name] for name in _KEPT_BY_PODMAN if name in os.environ}
    return Client(host, "podman", words, env={"PATH": _path(host), **kept})


def _path(host: Host) -> str:
    """Where a command line is looked for: here where the user's shell finds it, such as below a home folder."""
    return os.environ.get("PATH", PATH) if isinstance(host, OwnDevice) else PATH


def is_installed(host: Host, program: str) -> bool:
    return host.run([program, "--version"]).code == 0
