"""How this was recorded: page faults of two programs that differ by the fresh pages that they touch. Needs root.

`python3 record.py FOLDER`; the folder is as the `ftrace` probe leaves it, without roles.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

EVENTS = ("exceptions/page_fault_user", "exceptions/page_fault_kernel", "sched/sched_process_fork", "task/task_rename")
TOUCH = """
import mmap, sys
pages = int(sys.argv[1])
area = mmap.mmap(-1, 4096 * 2048)
area.madvise(mmap.MADV_NOHUGEPAGE)
for page in range(pages):
    area[page * 4096] = 1
"""


def main(out: pathlib.Path) -> None:
    root = pathlib.Path(tempfile.mkdtemp())
    subprocess.run(["mount", "-t", "tracefs", "tare", str(root)], check=True)
    instance = root / "instances" / "tare-recording"
    instance.mkdir()
    try:
        (instance / "trace_clock").write_text("mono")
        (instance / "buffer_size_kb").write_text("2048")
        (instance / "tracing_on").write_text("0")
        for event in EVENTS:
            (instance / "events" / event / "enable").write_text("1")
            keep = out / "formats" / event
            keep.parent.mkdir(parents=True, exist_ok=True)
            keep.write_text((instance / "events" / event / "format").read_text())
        (out / "header_page").write_text((instance / "events/header_page").read_text())
        pids = {}
        for pages in (0, 1500):
            child = subprocess.Popen(
                [sys.executable, "-S", "-E", "-c", "input();" + TOUCH, str(pages)], stdin=subprocess.PIPE
            )
            assert child.stdin is not None
            (instance / "set_event_pid").write_text(str(child.pid))
            (instance / "tracing_on").write_text("1")
            child.communicate(b"go\n")
            (instance / "tracing_on").write_text("0")
            pids[pages] = child.pid
        lost = save(instance, out)
        meta = {"clock": "mono", "page_bytes": 4096, "lost": lost, "pids": pids, "kernel": os.uname().release}
        (out / "trace.json").write_text(json.dumps(meta))
    finally:
        instance.rmdir()
        subprocess.run(["umount", str(root)], check=True)
        root.rmdir()


def save(instance: pathlib.Path, out: pathlib.Path) -> dict:
    lost = {}
    for folder in sorted((instance / "per_cpu").iterdir()):
        raw = os.open(folder / "trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK)
        pages = b""
        try:
            while page := os.read(raw, 4096):
                pages += page.ljust(4096, b"\0")
        except BlockingIOError:
            pass
        finally:
            os.close(raw)
        if pages:
            (out / f"{folder.name}.raw").write_bytes(pages)
        stats = dict(line.split(": ", 1) for line in (folder / "stats").read_text().splitlines())
        lost[folder.name.removeprefix("cpu")] = int(stats["overrun"])
    return lost


main(pathlib.Path(sys.argv[1]))
