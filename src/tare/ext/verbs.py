"""What a verb is written with: its options, its output, and the studies that it names."""

from __future__ import annotations

from tare.api.running import built_in
from tare.cli.report import draw, need_drawable
from tare.cli.scaffold import (
    STORE,
    NamesOption,
    QuantityOption,
    Result,
    Verb,
    Verbs,
    json_option,
    need,
    output_option,
    print_json,
    prints,
    reading,
    reads_store,
    reads_stores,
    say,
    say_notes,
    spinner,
    width,
)
from tare.drivers.sensors import parse_line
from tare.plan.guesses import planned_s
from tare.plan.matrix import Cell, aa_repeats, baseline
from tare.plan.matrix import cells as planned_cells
from tare.studies.load import at_every_scale
from tare.studies.model import Study
