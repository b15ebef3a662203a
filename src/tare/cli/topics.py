"""`tare show STORE TOPIC`: where time, energy and variation in the trials of a store come from."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tare.base.declare import Role
from tare.cli.scaffold import (
    SHARE,
    Result,
    Verb,
    against_option,
    by_option,
    columns_option,
    margin_option,
    metric_option,
    need,
    reads_source,
    reads_store,
    reads_stores,
    settings_option,
    width,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tare.records.store import Store


@click.command("energy", cls=Verb)
@reads_store()
@by_option
@against_option
def energy(store: Store, by: str | None, against: str | None) -> Result:
    """Energy of each cell: what the idle device draws, what the work adds, and why one cell takes more than another.

    A difference is split into three parts that add up: longer time (at the idle power of the cell it is compared
    with), different idle power (over its own time), and more work (the rest). Idle power is measured by
    `tare device baseload`.

    --json: {"cells": [{"label", "n", "scope", "figures": {METRIC: {"value", "low", "high", "n", "method"}}, "trials",
    "shared_by", "doubts", "without"}], "differences": [{"level", "against", "unit", "theirs_j", "total", "longer",
    "idle", "work", "share", "trials"}], "idle": [{"label", "logging", "power_w", "scope", "values_w", "trials"}],
    "notes"}; joules, watts and shares; what is unknown is null.
    """
    from tare.analysis.resources.energy import Energy
    from tare.report.sections import answer_text

    answer = Energy(by, against).answer(store)
    return Result(answer.result.as_json, lambda: answer_text(answer, width()))


@click.command("variability", cls=Verb)
@reads_source()
@metric_option("step_s for a store")
@columns_option("epoch", "trial", "device", "day", help_text="Of a table: which column has the number of each.")
@settings_option
@click.option(
    "--half-width", type=SHARE, default=0.02, show_default="2%", help="Target half-width of the interval of the mean."
)
@click.option("--keep-first", is_flag=True, help="Do not keep a trial's first epoch apart.")
def variability(
    source: Path, metric: str | None, columns: dict[str, str], settings: tuple[str, ...] | None, half_width: float,
    keep_first: bool,
) -> Result:  # fmt: skip
    """How much a metric varies, where the variation comes from, whether it drifts, and how many repeats are enough.

    tare show runs.csv variability --metric epoch_s --columns epoch=epoch,trial=run,device=board

    --json: {"figure", "samples", "cells", "components": [{"level", "deviation": {"value", "low", "high", "n",
    "method"}, "share"}], "first_epoch", "drift_in_trial", "drift_in_study", "worst": [{"what", "where",
    "deviation"}], "target", "plans": [{"trials", "epochs", "half_width"}], "cheapest", "notes"}; shares.
    """
    from tare.analysis.variability.findings import variability as variation
    from tare.analysis.variability.findings import variability_answer
    from tare.analysis.variability.samples import store_samples, table_samples
    from tare.records.schema import is_store
    from tare.report.sections import answer_text

    if is_store(source):
        need(not columns, "--columns is for tables: a store knows its epochs, trials and devices.")
        figure = metric or Role.STEP_MEDIAN.metric
        samples = store_samples(source, figure, settings)
    else:
        need(metric is not None, f"{source}: --metric COLUMN names the column.")
        figure = metric or ""
        samples = table_samples(source, figure, settings=settings or (), **columns)
    found = variation(samples, figure, target=half_width, keep_first=keep_first)
    return Result(found.as_json, lambda: answer_text(variability_answer(found), width()))


@click.command("pipeline", cls=Verb)
@reads_source()
@columns_option(
    "step", "stall", "compute", "workers", "storage", "cache",
    help_text="Which column has the time of a step, the stall and the computation in it, the number of loader workers, "
    "the medium, and the state of the page cache.  [default: by their usual names]",
)  # fmt: skip
@settings_option
@click.option(
    "--hidden", type=SHARE, default=0.05, show_default="5%", help="A stall below this share of the step is hidden."
)
def pipeline(
    source: Path, columns: dict[str, str], settings: tuple[str, ...] | None, hidden: float
) -> Result:  # fmt: skip
    """What limits a training: disk, CPU, GPU, launches or copies; and how many workers hide the fetch stall.

    The fewest workers and the slowest medium that hide it, predicted from the trials without workers, and measured.

    tare show loader.csv pipeline --settings model --columns workers=workers,storage=disk

    --json: {"share", "pipelines": [{"cell", "medium", "cache", "parts": [{"workers", "n", "step_s", "stall_s",
    "rest_s", "stall_share", "predicted_stall_s", "hidden", "by_median", "shares", "binds"}], "fetch_s", "disk_s",
    "disk_at_least", "workers_predicted", "workers_measured", "workers_by_median"}], "media": [{"cell", "cache",
    "workers", "slowest_predicted", "slowest_measured", "slowest_by_median"}], "notes"}; seconds and shares.
    """
    from tare.analysis.resources.pipeline import Loader
    from tare.report.sections import answer_text

    times = ("step", "stall", "compute")
    answer = Loader(
        settings=settings,
        columns={word: name for word, name in columns.items() if word in times},
        factors={word: name for word, name in columns.items() if word not in times},
        share=hidden,
    ).answer(source)
    return Result(answer.result.as_json, lambda: answer_text(answer, width()))


@click.command("tenants", cls=Verb)
@reads_store()
@margin_option("5%")
def tenants(store: Store, margin: float) -> Result:
    """How much each tenant was slowed down by the others, and how fairly the device was shared.

    The store is of a study with `tenants: [1, 4]` or `tenants: [1, {beside: {torch_infer: {}}}]`.
    """
    from tare.analysis.resources.tenants import Tenants
    from tare.report.sections import answer_text

    answer = Tenants(margin).answer(store)
    return Result(lambda: {"tenants": [asdict(one) for one in answer.result]}, lambda: answer_text(answer, width()))


@click.command("devices", cls=Verb)
@reads_stores()
@metric_option("the study's, power, energy", multiple=True)
@by_option
@against_option
@margin_option()
def devices(
    stores: Sequence[Store], metrics: tuple[str, ...], by: str | None, against: str | None, margin: float | None
) -> Result:
    """What holds for devices in general, how they differ, and which one is an outlier among identical devices.

    A STORE is of a run with --fleet, or there is one for each device. Each device counts as one sample: trials of
    several devices are never pooled. Devices of one type are identical.

    --json: {"devices", "study", "types", "margin", "by", "quantities": [{"metric", "effects": [{"level", "against",
    "where", "devices": [{"device", "type", "effect"}], "populations": [{"of", "mean", "tau", "next_low",
    "next_high", "verdict"}]}], "spreads": [{"where", "trials", "components": [{"level", "deviation", "share"}]}],
    "standings": [{"device", "type", "trials", "deviation", "low", "high", "random_effect", "p", "unlike"}],
    "odd": [{"device", "what", "deviation", "p", "candidates", "sentence"}], "could_see", "notes"}], "notes"};
    estimates are {"value", "low", "high", "n", "method"}, in shares.
    """
    from tare.analysis.fleet.devices import devices_answer
    from tare.analysis.fleet.findings import fleet_of_stores
    from tare.report.sections import answer_text

    found = fleet_of_stores(stores, by=by, against=against, margin=margin, metrics=metrics)
    return Result(found.as_json, lambda: answer_text(devices_answer(found), width()))


TOPICS = {each.name: each for each in (energy, variability, pipeline, tenants, devices)}
