"""Cases for the claims of S2: see `claim_case`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from claim_case import Case, cell, two
from claimed import Cell


def _containers_write_back(x: float) -> list[Cell]:
    return [
        cell({}, {"writeback_interval_s": 5.0, "writeback_interval_sd_s": 0.5}),
        cell({"platform": "docker"}, {"writeback_interval_s": 5.0 * (1 - x), "writeback_interval_sd_s": 0.5 * (1 + x)}),
    ]


def _tenants(figures: Callable[[int, float], Mapping[str, float]]) -> Callable[[float], list[Cell]]:
    return lambda x: [cell({"platform": "docker", "tenants": n}, figures(n, x)) for n in (1, 2, 4)]


S2 = {
    "s2.daemon-is-insignificant": Case(
        lambda x: [
            cell({"platform": "docker"}, {"count_page_faults": 1e6, "daemon_page_faults": 1e6 * x, "cycles": 1e9,
                                          "daemon_cycles": 1e6})
        ],
        0.001, 0.1, 0.01,
    ),
    "s2.block-requests-rise": Case(two("count_block_rq_insert", 3e4), 0.5, 0.0, 0.05),
    "s2.interval-below-flush-interval": Case(
        lambda x: [
            cell({"platform": "docker", "control.dirty.writeback": 5.0}, {"writeback_interval_s": 5.0 * (1 - x)})
        ],
        0.4, 0.0, 0.05,
    ),
    "s2.faults-and-cycles-rise": Case(
        lambda x: [
            cell({}, {"minor_faults": 1e5, "major_faults": 10, "cycles": 1e12}),
            cell({"platform": "docker"}, {"minor_faults": 2e5, "major_faults": 20, "cycles": 1e12 * (1 + x)}),
        ],
        0.5, 0.0, 0.03,
    ),
    "s2.write-backs-more-often-and-less-regularly": Case(_containers_write_back, 0.3, 0.0, 0.03),
    "s2.tenants-flush-more-at-the-same-interval": Case(
        _tenants(lambda n, x: {"writeback_interval_s": 5.0 * (1 + x * (n > 1)), "written_pages": 1e4 * n}),
        0.0, 0.4, 0.09,
    ),
    "s2.background-write-backs-grow-with-tenants": Case(
        _tenants(lambda n, x: {"writeback_count": 1e4 * n, "writeback_background_count": 3e3 * n * (1 + x * (n - 1))}),
        0.2, 0.0, 0.01, noise=0.3,
    ),
    "s2.faults-concentrate-on-few-files": Case(
        lambda x: [cell({"platform": "docker"}, {"fault_top10_share": x})], 0.7, 0.1, 0.5
    ),
    "s2.write-backs-concentrate-on-hot-pages": Case(
        lambda x: [cell({}, {"writeback_hot_share_early": 0.2, "writeback_hot_share_late": 0.2 * (1 + x)})],
        1.0, 0.0, 0.03,
    ),
    "s2.nvm-layer-cuts-flush-latency": Case(
        lambda x: [cell({}, {"flush_latency_disk_only_s": 0.008, "flush_latency_nvm_s": 0.008 * (1 - x)})],
        0.82, 0.1, 0.5,
    ),
}  # fmt: skip
