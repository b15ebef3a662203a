"""As much of `mlperf_loadgen` as our side uses: the same names, the same order of calls, the same two files.

What it writes follows what LoadGen 6.0.17 wrote on a real machine (tests/recordings/loadgen).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

SCENARIOS = ("SingleStream", "MultiStream", "Server", "Offline")


class Sample(NamedTuple):
    id: int
    index: int


class PretendLoadGen:
    """A module's worth of names; `queries` are asked, whatever the settings say of time."""

    def __init__(self, queries: int = 6, samples: int = 3) -> None:
        self._queries, self._samples = queries, samples
        self._asked: dict[int, float] = {}
        self._latencies_ns: list[float] = []
        self._all_done = threading.Event()
        self.destroyed: list[str] = []
        self.TestScenario = SimpleNamespace(**{name: name for name in SCENARIOS})
        self.TestMode = SimpleNamespace(PerformanceOnly="PerformanceOnly")
        self.TestSettings = self.LogSettings = self.LogOutputSettings = SimpleNamespace

    def QuerySampleResponse(self, identity: int, data: int, size: int) -> int:  # noqa: N802
        return identity

    def ConstructSUT(self, issue: Callable[..., None], flush: Callable[[], None]) -> Any:  # noqa: N802
        return issue, flush

    def ConstructQSL(self, total: int, performance: int, load: Any, unload: Any) -> Any:  # noqa: N802
        return total, load, unload

    def DestroySUT(self, system: Any) -> None:  # noqa: N802
        self.destroyed.append("SUT")

    def DestroyQSL(self, library: Any) -> None:  # noqa: N802
        self.destroyed.append("QSL")

    def QuerySamplesComplete(self, responses: Sequence[int]) -> None:  # noqa: N802
        now_s = time.monotonic()
        self._latencies_ns += [(now_s - self._asked.pop(identity)) * 1e9 for identity in responses]
        if not self._asked:
            self._all_done.set()

    def StartTestWithLogSettings(  # noqa: N802
        self, system: Any, library: Any, settings: Any, log: Any, audit: str
    ) -> None:
        (issue, flush), (total, load, unload) = system, library
        load(list(range(total)))
        identity = 0
        for _ in range(1 if settings.scenario == "Offline" else self._queries):
            size = self._queries if settings.scenario == "Offline" else self._samples
            samples = [Sample(identity + place, (identity + place) % total) for place in range(size)]
            identity += size
            self._all_done.clear()
            self._asked.update((sample.id, time.monotonic()) for sample in samples)
            issue(samples)
            self._all_done.wait(30)
        flush()
        unload(list(range(total)))
        self._write(Path(log.log_output.outdir), settings)

    def _write(self, folder: Path, settings: Any) -> None:
        if not self._latencies_ns:
            return  # ended before its first answer: as the real one, it then writes no result
        mean_ns = sum(self._latencies_ns) / len(self._latencies_ns)
        said = {
            "loadgen_version": "pretended",
            "effective_scenario": settings.scenario,
            "effective_min_duration_ms": settings.min_duration_ms,
            "result_validity": "INVALID",
            "result_invalid_reason": "",
            "early_stopping_result": " * Only processed 6 queries.\n * Need to process at least 64 queries.",
            "result_query_count": self._queries,
            "result_mean_latency_ns": int(mean_ns),
        }
        lines = [":::MLLOG " + json.dumps({"key": key, "value": value}) for key, value in said.items()]
        (folder / "mlperf_log_detail.txt").write_text("\n".join(lines) + "\n")
        (folder / "mlperf_log_summary.txt").write_text("MLPerf Results Summary\nResult is : INVALID\n")
