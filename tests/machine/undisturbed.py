"""`tare`, but what else the machine does makes no trial invalid: for tests beside others that read the results."""

from __future__ import annotations

import sys
from dataclasses import replace

from tare.cli import main
from tare.fleet import local
from tare.trial import verdict

if __name__ == "__main__":
    verdict.THRESHOLDS = replace(verdict.THRESHOLDS, foreign_invalid_share=1.0, steal_invalid_share=1.0)
    local.THRESHOLDS = replace(local.THRESHOLDS, rerun_limit=0)
    sys.exit(main())
