"""`tare`, but an invalid trial is not run again: beside other tests the next attempt would be disturbed as well."""

from __future__ import annotations

import sys
from dataclasses import replace

from tare.cli import main
from tare.fleet import local

if __name__ == "__main__":
    local.THRESHOLDS = replace(local.THRESHOLDS, rerun_limit=0)
    sys.exit(main())
