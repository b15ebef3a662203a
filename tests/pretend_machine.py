"""A program that behaves like a virtual machine's monitor: makes a socket, then speaks as the guest's agent.

pretend_machine.py SOCKET [--config FILE]    with a config it is Firecracker, and wants `CONNECT 5252` first
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
    from tare_inside.agents import guest, guest_jobs
    from tare_inside.agents import guest_jobs as guest_frames

    path = arguments[0]
    if path == "--config-file":
        path = json.loads(Path(arguments[1]).read_text())["vsock"]["uds_path"]
    door = socket.socket(socket.AF_UNIX)
    door.bind(path)
    door.listen(4)
    line, _ = door.accept()
    if arguments[0] == "--config-file":
        line.recv(64)  # a guest that has not come up yet: the line is closed again
        line.close()
        line, _ = door.accept()
        assert line.recv(64) == b"CONNECT 5252\n"
        line.sendall(b"OK 1073741824\n")
    guest_jobs.HERE = str(Path(path).parent)
    guest.Agent(guest_frames.Channel(line.detach())).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
