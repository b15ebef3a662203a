"""What reads a store: trials, their tables and figures, cells, comparisons, statistics and the words for them."""

from __future__ import annotations

from tare.analysis import parity
from tare.analysis.cells import (
    ALWAYS_COLD,
    CACHE,
    COLD,
    EMULATED,
    EVERY,
    FIRST,
    NEVER,
    PLACEMENT,
    WARM,
    WORKERS,
    Cells,
    When,
    cells,
    far_from_block,
    placed,
    reads,
)
from tare.analysis.choose.law import Array
from tare.analysis.choose.law import Rows as LawRows
from tare.analysis.choose.regression import PAPER_MODES, papers_choice, regress
from tare.analysis.compare import MOST, TIE, Contest, contests, judge, largest_floor, noise_floor
from tare.analysis.derived import SOURCES, Found, Make, TrialData, of_a_mini_batch, with_figures
from tare.analysis.estimators import Sides, line_up
from tare.analysis.fleet.stores import StoreSides, sides_of_stores
from tare.analysis.labels import setting_words, title_of
from tare.analysis.labels import text as label_text
from tare.analysis.model import Comparison, Measurement
from tare.analysis.noise import LOOKING_ALPHA, seen_alpha
from tare.analysis.numeric.medians import ALPHA, FLOOR, median_estimate
from tare.analysis.observations import ASLEEP, energy_facts, is_idle, records_of, usable_attempts
from tare.analysis.parity import ACCEL, DEVICE_KEYS, differences, flat, rule_for, taints
from tare.analysis.parity import EMULATED as EMULATED_CPU
from tare.analysis.resources.energy import POWER_PROBES, doubt_about_energy
from tare.analysis.resources.pipeline import HIDDEN_SHARE, predicted_stall
from tare.analysis.selection import DEFAULT_MARGIN, blocks_reach_s, measurements, request
from tare.analysis.sentences import (
    counted,
    effect_of,
    interval_of,
    noise_text,
    percent,
    sensitivity_of,
    signed_percent,
    too_few_for_interval,
)
from tare.analysis.sentences import unit as unit_words
from tare.analysis.variability.samples import epoch_means
from tare.analysis.why.layers import Waterfall, waterfall
from tare.records.intervals import Intervals, coded, intervals
from tare.records.model import (
    DEVICE,
    TYPE,
    Record,
    StoreTrials,
    TrialRow,
    collected,
    device_of,
    grouped,
    has_most_of,
    is_board,
    is_usable,
    kind_of_device,
    started_s,
    usable_trials,
    varied,
    without_copies,
)
from tare.records.pack import stores_in
from tare.records.parquet import TableFiles, TableName, engine, insert, write_table
from tare.records.schema import is_store
from tare.records.store import Store
from tare.records.thin_pack import InOrder, TablesKept
from tare.records.unpack import each_pack_once
