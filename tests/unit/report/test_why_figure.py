"""The waterfall as a drawing."""

from __future__ import annotations

from dataclasses import replace

from some_layers import container
from tare.report.charts.effects import why_figure
from tare.report.evidence import layers_found


def test_every_layer_has_a_bar_and_the_guilty_are_told() -> None:
    figure = why_figure(layers_found(container({"cpu": 0.3}), 0.05))

    assert figure is not None
    assert "Surely slower with it: cpu cgroup (quota)" in figure.reading
    assert figure.rows[0][0].text == "mount namespace, overlay root"
    bars = figure.chart["data"]["values"]
    assert [bar["layer"] for bar in bars if bar["sure"] == "surely slower with it"] == ["cpu cgroup (quota)"]
    assert [bar["begin"] for bar in bars[1:]] == [bar["end"] for bar in bars[:-1]]


def test_a_store_without_layers_has_no_waterfall() -> None:
    plain = [record for record in container({}) if record.settings["platform"] == "bare"]

    assert why_figure(layers_found(plain, 0.05)) is None


def test_without_usable_trials_of_bare_metal_there_is_none() -> None:
    spoilt = [replace(each, state="failed") if each.settings["platform"] == "bare" else each for each in container({})]

    assert why_figure(layers_found(spoilt, 0.05)) is None
