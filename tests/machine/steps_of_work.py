"""A small program with marked steps, for tests that plant a cause: it computes, asks the kernel, reads and writes.

python steps_of_work.py STEPS [--calls N] [--read FILE] [--write FILE]
"""

import argparse
import os

from tare_inside import marks


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("steps", type=int)
    asked.add_argument("--calls", type=int, default=0)
    asked.add_argument("--read")
    asked.add_argument("--write")
    wanted = asked.parse_args()
    for step in range(wanted.steps):
        marks.begin("step", step)
        total = 0
        for number in range(60_000):
            total += number
        for _ in range(wanted.calls):
            os.getppid()
        if wanted.read:
            with open(wanted.read, "rb") as file:  # noqa: PTH123
                while file.read(1 << 20):
                    pass
        if wanted.write:
            with open(wanted.write, "wb") as file:  # noqa: PTH123
                file.write(b"x" * 65536)
        marks.end("step", step)


if __name__ == "__main__":
    main()
