"""`tare`, but an invalid trial is not run again (the next attempt would be disturbed too), and there is no report."""

from __future__ import annotations

import sys
from dataclasses import replace

from without_report import leave_out_the_report, main

from tare.fleet import local


def change_tare() -> None:
    local.THRESHOLDS = replace(local.THRESHOLDS, rerun_limit=0)
    leave_out_the_report()


if __name__ == "__main__":
    change_tare()
    sys.exit(main())
