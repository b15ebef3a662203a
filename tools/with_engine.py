"""Runs a command with a Docker engine: the one that is running, else a private one, which its last user stops."""

from __future__ import annotations

import os
import subprocess
import sys

from tare.base.host import LocalHost
from tare.drivers.containers import engine


def main(command: list[str]) -> int:
    with engine.held(LocalHost()):
        found = engine.find()
        # By address: tests have their own state folder, and would not find a private engine there.
        env = os.environ if found is None else {**os.environ, "DOCKER_HOST": found.address}
        return subprocess.run(command, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
