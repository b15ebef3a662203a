"""S2: the container's effect on page faults, cycles and write-backs, and a non-volatile layer for flushing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from tare.ext.analysis import Record
from tare.papers.claims import metrics
from tare.papers.claims.checks import tendency
from tare.papers.claims.metrics import is_bare, is_container
from tare.papers.claims.model import ASSUMED, Check, Claim, Look, Population, ends, minus, rising, trend, where
from tare.papers.claims.s0 import NO_PAIR, container_figure

INSIGNIFICANT = 0.01  # of the process's; the paper's daemon has at most 0.4 % of any event that it counts often
CONCENTRATED = 0.5  # "a majority of page-faults" in the ten files with most of them; the paper's own top ten has 32.9 %
CUT = 0.5  # of the latency without the layer; the paper has 0.10 to 0.23
SIMULATED = "a simulated non-volatile layer (a tenth of the pages written back, LRU, disk 8 ms, NVM 350 ns)"
CAPACITY = (
    "it depends on the capacity of the layer, which the paper does not state: a tenth of the pages is assumed here"
)
LIMIT = "control.dirty.background_bytes"
SET_LIMIT = (
    "it depends on the limit from which pages are written back in the background, which the study sets between what "
    "one and what several tenants write"
)
TIMER = "control.dirty.writeback"
SET_TIMER = (
    "it depends on how often the flusher wakes, which the study sets: what is not written back in the background waits "
    "for it"
)
MALLOC = "workload.malloc"
FIXED_MALLOC = (
    "it depends on the allocator, whose thresholds are fixed on both sides here (`malloc: default` leaves them)"
)
NO_TIMER = "no container has both its write-backs and the flush interval (vm.dirty_writeback_centisecs)"
NO_TENANTS = "no workload was run both alone and with more tenants"


def faults_and_cycles_rise(evidence: Population) -> Look:
    faults = evidence.over(evidence.figured(metrics.page_faults), is_container)
    checks = tendency("page faults, container against bare metal", faults, "rises")
    cycles = container_figure(evidence, metrics.CYCLES, "rises")
    missing = cycles.missing if checks else [NO_PAIR, *cycles.missing]
    is_fixed = any(record.settings.get(MALLOC) == "fixed" for record in _used(evidence, checks))
    return Look([*checks, *cycles.checks], list(dict.fromkeys(missing)), FIXED_MALLOC if is_fixed else "")


def daemon_is_insignificant(evidence: Population) -> Look:
    """What the engine's daemons count, as a share of what the container's process counts; none counts as one."""
    checks: list[Check] = []
    for daemon, process in ((metrics.DAEMON_FAULTS, metrics.PAGE_FAULTS), (metrics.DAEMON_CYCLES, metrics.CYCLES)):

        def share(record: Record, ours: str = daemon[0], theirs: str = process[0]) -> float | None:
            part, whole = record.metrics.get(ours), record.metrics.get(theirs, 0.0)
            return None if part is None or whole <= 0 else max(1.0, part) / whole

        cells = where(evidence.figured(share), is_container)
        about = f"{metrics.WORDS[daemon]}, of those of the container's process"
        checks += tendency(about, cells, "falls", bound=INSIGNIFICANT - 1, kind="share")
    return Look.of(checks, evidence.absent(metrics.DAEMON_FAULTS))


def interval_below_flush_interval(evidence: Population) -> Look:
    """The time between write-backs in a container, against how often the kernel's flusher wakes."""

    def of_timer(record: Record) -> float | None:
        interval_s, timer_s = record.metrics.get(metrics.WRITEBACK_INTERVAL[0]), _timer_s(record)
        return interval_s / timer_s if interval_s is not None and timer_s else None

    cells = where(evidence.figured(of_timer), is_container)
    made = tendency("time between write-backs in a container against the flush interval", cells, "falls")
    known = evidence.first(metrics.WRITEBACK_INTERVAL) is not None
    return Look.of(made, NO_TIMER if known else evidence.absent(metrics.WRITEBACK_INTERVAL))


def _timer_s(record: Record) -> float | None:
    """As the study sets it, else as the device had it, in hundredths of a second."""
    if (asked := record.settings.get(TIMER)) is not None:
        return float(asked)
    found = (record.facts.get("device") or {}).get("vm.dirty_writeback_centisecs")
    return float(found) / 100 if isinstance(found, int | float | str) and str(found).isdigit() else None


def write_backs_more_often_and_less_regularly(evidence: Population) -> Look:
    often = container_figure(evidence, metrics.WRITEBACK_INTERVAL, "falls")
    intervals, spreads = evidence.cells(metrics.WRITEBACK_INTERVAL), evidence.cells(metrics.WRITEBACK_DEVIATION)
    uneven = evidence.over(minus(spreads, intervals), is_container)
    about = "spread of the time between write-backs, of its mean, container against bare metal"
    checks = tendency(about, uneven, "rises")
    missing = [*often.missing, *([] if checks or often.missing else [evidence.absent(metrics.WRITEBACK_DEVIATION)])]
    made = [*often.checks, *checks]
    return Look(made, missing, SET_TIMER if _is_set(evidence, made, TIMER) else "")


def tenants_flush_more_at_the_same_interval(evidence: Population) -> Look:
    intervals = ends(evidence.cells(metrics.WRITEBACK_INTERVAL), "tenants", rising)
    pages = ends(evidence.cells(metrics.WRITTEN_PAGES), "tenants", rising)
    checks = tendency("time between write-backs, most tenants against one", intervals, "same", margin=0.1)
    checks += tendency("pages written, most tenants against one", pages, "rises")
    missing = [] if intervals else [_no_tenants(evidence, metrics.WRITEBACK_INTERVAL)]
    missing += [] if pages else [_no_tenants(evidence, metrics.WRITTEN_PAGES)]
    return Look(checks, missing, SET_LIMIT if _is_set(evidence, checks, LIMIT) else "")


def background_grows_with_tenants(evidence: Population) -> Look:
    """In points of a share: one that writes alone may have none, of which nothing is a multiple."""

    def as_log(record: Record) -> float | None:
        share = metrics.background_share(record)
        return None if share is None else math.exp(share)

    about = "background's share of the write-backs, from fewest tenants to most"
    made = tendency(about, trend(evidence.figured(as_log), "tenants", rising), "rises", kind="points")
    depends_on = SET_LIMIT if _is_set(evidence, made, LIMIT) else ""
    return Look.of(made, _no_tenants(evidence, metrics.WRITEBACKS), depends_on=depends_on)


def _is_set(evidence: Population, checks: Sequence[Check], name: str) -> bool:
    return any(record.settings.get(name) is not None for record in _used(evidence, checks))


def _used(evidence: Population, checks: Sequence[Check]) -> list[Record]:
    """The records of the trials that checks rest on."""
    used = frozenset().union(*(check.trials for check in checks))
    return [trial for trial in evidence.trials if trial.trial in used]


def _no_tenants(evidence: Population, names: metrics.Names) -> str:
    return evidence.absent(names) if evidence.first(names) is None else NO_TENANTS


def faults_concentrate(evidence: Population) -> Look:
    cells = where(evidence.cells(metrics.TOP_FAULTS), lambda cell: not is_bare(cell))
    made = tendency("share of the page faults in ten files", cells, "rises", bound=CONCENTRATED - 1, kind="share")
    return Look.of(made, evidence.absent(metrics.TOP_FAULTS))


def hot_pages(evidence: Population) -> Look:
    cells = minus(evidence.cells(metrics.HOT_LATE), evidence.cells(metrics.HOT_EARLY))
    made = tendency("share of the write-backs that the hottest pages take, late against early", cells, "rises")
    return Look.of(made, evidence.absent(metrics.HOT_LATE))


def nvm_cuts_latency(evidence: Population) -> Look:
    cells = minus(evidence.cells(metrics.FLUSH_WITH_NVM), evidence.cells(metrics.FLUSH))
    made = tendency(f"flush latency, with {SIMULATED} against without", cells, "falls", bound=CUT - 1)
    figure = metrics.FLUSH_WITH_NVM[0]
    ours = [trial for trial in evidence.trials if figure in trial.metrics]
    assumed = bool(ours) and all(figure in record.facts.get(ASSUMED, ()) for record in ours)
    return Look.of(made, evidence.absent(metrics.FLUSH_WITH_NVM), depends_on=CAPACITY if assumed else "")


CLAIMS = (
    Claim("s2.faults-and-cycles-rise", "4.1, Table 5", "page faults and cycles rise in containers", "s2-events",
          faults_and_cycles_rise),
    Claim("s2.daemon-is-insignificant", "4.1, Table 5",
          "the engine's daemon adds less than 1 % to what the container's process takes", "s2-events",
          daemon_is_insignificant),
    Claim("s2.block-requests-rise", "4.1, Tables 5 and 6", "more block requests are inserted in containers",
          "s2-events", partial(container_figure, names=metrics.INSERTED, wants="rises")),
    Claim("s2.interval-below-flush-interval", "4.2, Table 7",
          "containers are written back more often than the flush interval", "s2-writebacks",
          interval_below_flush_interval),
    Claim("s2.write-backs-more-often-and-less-regularly", "4.2, Fig. 3",
          "write-backs come more often and less regularly in containers", "s2-writebacks",
          write_backs_more_often_and_less_regularly),
    Claim("s2.tenants-flush-more-at-the-same-interval", "4.2, Fig. 3",
          "tenants do not change the interval of write-backs but flush more", "s2-writebacks",
          tenants_flush_more_at_the_same_interval),
    Claim("s2.background-write-backs-grow-with-tenants", "5, Tables 9 and 10",
          "background write-backs grow with tenants", "s2-writebacks", background_grows_with_tenants),
    Claim("s2.faults-concentrate-on-few-files", "4.3, Table 8", "page faults concentrate on few files",
          "s2-page-faults", faults_concentrate),
    Claim("s2.write-backs-concentrate-on-hot-pages", "5, Fig. 4",
          "write-backs concentrate on few hot pages after a while", "s2-writebacks", hot_pages),
    Claim("s2.nvm-layer-cuts-flush-latency", "5, Fig. 6", "a non-volatile layer cuts flush latency by more than half",
          "s2-nvm", nvm_cuts_latency),
)  # fmt: skip
