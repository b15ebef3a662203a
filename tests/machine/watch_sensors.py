"""Run in a mount namespace of its own: the real sampler on a pretended /sys/class; prints what came of it as JSON."""

import json
import sys
import tempfile
import time
from pathlib import Path

from tare.base.host import LocalHost, Scope
from tare.parts.probes.cpu import Cpu
from tare.parts.probes.power import PowerRails, PowerRapl
from tare.parts.probes.thermal import Temperature, Thermal
from tare.records.spool import read_spool
from tare.trial.sampler import Sampler

PROBES = (Cpu(), PowerRails(), PowerRapl(), Temperature(period=0.1), Thermal(period=0.1))


def main() -> None:
    obstacles = [sentence for probe in PROBES for sentence in map(str, probe.obstacles(LocalHost()))]
    with tempfile.TemporaryDirectory() as folder:
        spool = Path(folder) / "spool.db"
        with Sampler(PROBES, spool, period_s=0.05) as sampler:
            sampler.begin(Scope())
            time.sleep(float(sys.argv[1]))
            report = sampler.end()
        series = {name: list(values) for name, (_, values) in read_spool(spool).items()}
    sys.stdout.write(json.dumps({"obstacles": obstacles, "report": report.as_json(), "series": series}))


if __name__ == "__main__":
    main()
