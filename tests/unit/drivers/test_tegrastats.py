"""Lines of tegrastats: those of seven boards, and shapes that other releases print."""

import math
from itertools import pairwise
from pathlib import Path

import pytest

from tare.drivers.sensors import parse_line

LOG = Path(__file__).parents[2] / "recordings" / "jetson" / "tegrastats.txt"
LINES = LOG.read_text().splitlines()
BOARDS = {label: line for label, line in pairwise(LINES) if not line.startswith("#")}


def said_by(board):
    (line,) = (line for label, line in BOARDS.items() if board in label)
    return parse_line(line)


def test_all_seven_boards_are_understood_and_the_labels_are_not_lines():
    assert len(BOARDS) == 7
    assert all(parse_line(label) is None for label in BOARDS)
    assert all(parse_line(line) for line in BOARDS.values())


def test_a_line_is_given_in_base_units():
    assert said_by("jetson-nano") == {
        "ram_used_bytes": 534 * 2**20,
        "ram_total_bytes": 3964 * 2**20,
        "swap_used_bytes": 5 * 2**20,
        "cpus": [
            {"util": 0.16, "hz": 204_000_000},
            {"util": 0.09, "hz": 204_000_000},
            {"util": 0.0, "hz": 204_000_000},
            {"util": 0.0, "hz": 204_000_000},
        ],
        "gpu_util": 0.0,
        "gpu_hz": 76_000_000,
        "emc_util": 0.0,
        "temps_c": {"PLL": 34.0, "CPU": 36.5, "PMIC": 100.0, "GPU": 36.0, "AO": 39.5, "thermal": 36.25},
        "rails_w": {"POM_5V_IN": 1.022, "POM_5V_GPU": 0.0, "POM_5V_CPU": 0.204},
        "power_total_w": 1.022,
    }


@pytest.mark.parametrize(
    ("board", "total_w"),
    [
        ("jetson-tx2", 3.056),
        ("jetson-nano", 1.022),
        ("jetson-agx-xavier", 0.311 + 0.932 + 0.621 + 1.482),
        ("jetson-xavier-nx", 4.067),
        ("jetson-agx-orin, L4T r36", 3.205 + 4.405 + 4.767),
        ("jetson-agx-orin, L4T r35", 1.995 + 2.524),
        ("jetson-orin-nano", 3.913),
    ],
)
def test_the_module_is_its_input_rail_or_else_the_sum_of_its_rails(board, total_w):
    assert said_by(board)["power_total_w"] == pytest.approx(total_w)


def test_what_a_line_does_not_have_is_absent():
    said = said_by("jetson-agx-orin, L4T r35")
    assert said.keys() == {
        "ram_used_bytes",
        "ram_total_bytes",
        "swap_used_bytes",
        "cpus",
        "gpu_util",
        "temps_c",
        "rails_w",
        "power_total_w",
    }
    assert said["cpus"][7:] == [{"util": 0.0, "hz": 729_000_000}, None, None, None, None]


@pytest.mark.parametrize(
    ("rest", "key", "value"),
    [
        # JetPack 7: three values a rail, two a sensor; VDDQ_VDD2_1V8AO is a part of VIN_SYS_5V0
        (
            "VDD_GPU_SOC 5139mW/5139mW/5139mW VDD_CPU_CV 3268mW/1mW/1mW VIN_SYS_5V0 5500mW/1mW/1mW "
            "VDDQ_VDD2_1V8AO 403mW/403mW/403mW",
            "power_total_w",
            5.139 + 3.268 + 5.5,
        ),
        ("cpu@52.968C/54.1C", "temps_c", {"cpu": 52.968}),
        ("CV0@-256C AO@-5.5C", "temps_c", {"AO": -5.5}),
        ("GR3D_FREQ 12%@[1300,1300]", "gpu_hz", 1_300_000_000),
        ("GR3D_FREQ 0%@[510]", "gpu_hz", 510_000_000),
        ("GR3D_FREQ @[0,1000,918]", "gpu_hz", 1_000_000_000),
        ("GR3D 33%@998", "gpu_util", 0.33),
        ("EMC_FREQ 7%", "emc_util", 0.07),
        ("EMC 4%@1600", "emc_util", 0.04),
        ("VDD_IN 2532", "power_total_w", 2.532),
        ("VDD_IN 2532mW", "power_total_w", 2.532),
        ("VDD_IN 5.1W/5.0W", "power_total_w", 5.1),
        ("VDD_IN 5100/5000mW", "power_total_w", 5.1),
        ("VDD_IN 5.1 W/5.0 W", "power_total_w", 5.1),
        ("VDD_GPU 12W VIN 23W", "power_total_w", 23.0),
        ("VDD_GPU -392mW/0mW", "rails_w", {"VDD_GPU": -0.392}),
        ("CPU [0%,12.5%, off,3%]@1734", "cpus", [
            {"util": 0.0, "hz": 1_734_000_000},
            {"util": 0.125, "hz": 1_734_000_000},
            None,
            {"util": 0.03, "hz": 1_734_000_000},
        ]),
        ("cpu [OFF,7%]", "cpus", [None, {"util": 0.07}]),
        ("SWAP 0.5/3.7GB", "swap_used_bytes", 2**29),
        ("SWAP 12/99kB (cached 0MB)", "swap_used_bytes", 12 * 1024),
    ],
)  # fmt: skip
def test_other_boards_and_releases(rest, key, value):
    for front in ("", "12-23-2024 22:54:11 ", "2026-07-25T09:08:28+02:00 ", "Mon Jan 1 22:54:11 2026: "):
        said = parse_line(f"{front}RAM 4722/7844MB (lfb 1x512kB) IRAM 0/252kB(lfb 252kB) {rest} MTS fg 0% bg 0%")
        assert said["ram_total_bytes"] == 7844 * 2**20
        assert said[key] == (pytest.approx(value) if isinstance(value, float) else value)


@pytest.mark.parametrize(
    "engines",
    ["APE 150", "NVENC 115 NVDEC 115", "VIC_FREQ 601", "NVENC off NVDLA0 OFF", "VIC 0%@115", "MSENC 0 PVA0_FREQ off"],
)
def test_the_clock_of_an_engine_is_no_rail(engines):
    assert "rails_w" not in parse_line(f"RAM 1/2MB {engines}")


@pytest.mark.parametrize("rails", ["VDD_NEW 100mW", "GPU 5/5 CPU 5/5", "VIN_SYS_5V0 4767mW", "VDD_GPU_SOC 1mW"])
def test_a_part_of_the_rails_is_not_the_module(rails):
    said = parse_line(f"RAM 1/2MB {rails}")
    assert said["rails_w"]
    assert "power_total_w" not in said


@pytest.mark.parametrize(
    "garbage",
    ["", "RAM", "RAM 1/2", "RAM x/yMB", "CPU []x", "# RAM usage", "PROGRAM 1/2MB", "RAM 1/2MBit", "RAM 1e3/2MB"],
)
def test_what_is_not_of_tegrastats_is_told_apart(garbage):
    assert parse_line(garbage) is None


@pytest.mark.parametrize("value", ["N/A", "nan", "1e99", "32760ma", "--1", "9" * 400, "0x10", "1.2.3mW", "5mV"])
def test_a_value_that_makes_no_sense_is_absent_and_never_zero(value):
    said = parse_line(f"RAM 1/2MB VDD_IN {value}/{value} GPU@{value}C EMC_FREQ {value}% CPU [{value}%@1]")
    assert said == {"ram_used_bytes": 2**20, "ram_total_bytes": 2**21}
    assert all(math.isfinite(number) for number in said.values())
