"""`tare`, but a run writes no report at its end: that takes most of its CPU time, and other tests read it."""

from __future__ import annotations

import sys

from tare.cli import main, report

TARE = (sys.executable, "-P", __file__)  # the command line


def leave_out_the_report() -> None:
    report.write_report = lambda *_: None


change_tare = leave_out_the_report

if __name__ == "__main__":
    change_tare()
    sys.exit(main())
