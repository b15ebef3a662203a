from __future__ import annotations

import pytest

from tare.base.errors import TareError
from tare.drivers.power import named_mode
from tare.drivers.power.named_mode import parse_conf
from trees.jetson import RECORDINGS

NANO = (RECORDINGS / "nvpmodel_nano.conf").read_text()


def test_the_nanos_configuration_is_read():
    conf = parse_conf(NANO)
    assert [(one.id, one.name) for one in conf.models] == [(0, "MAXN"), (1, "5W")]
    assert conf.default == 0
    assert conf.params["GPU"].files["MAX_FREQ"] == "/sys/devices/57000000.gpu/devfreq/57000000.gpu/max_freq"
    five_watts = conf.model("5W")
    assert five_watts is not None
    assert five_watts.cores() == {0: True, 1: True, 2: False, 3: False}


def test_a_mode_is_found_by_name_by_number_and_in_small_letters():
    conf = parse_conf(NANO)
    assert conf.model("1") == conf.model("5W") == conf.model("5w")
    assert conf.model("7") is None


def test_the_paths_of_agx_orin_are_read_with_those_of_the_next_kernel():
    conf = parse_conf((RECORDINGS / "nvpmodel_agx_orin_paths.conf").read_text())
    assert conf.models == ()
    assert conf.params["GPU"].files["MAX_FREQ_KNEXT"].endswith("devfreq_dev/max_freq")
    assert conf.params["EMC"].kind == "FILE"


def test_blocks_that_say_nothing_of_power_are_passed_over_and_keys_come_in_any_order():
    text = "< FAN_CONFIG DEFAULT=quiet >\nanything here\n< POWER_MODEL NAME=MAXN ID=3 >\nGPU MAX_FREQ -1  # highest\n"
    (model,) = parse_conf(text).models
    assert (model.id, model.values[0].text) == (3, "-1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("< POWER_MODEL ID=0 NAME=MAXN", "line 1: '< POWER_MODEL ID=0 NAME=MAXN' is not the head of a block"),
        ("< POWER_MODEL NAME=MAXN >", "line 1: a POWER_MODEL needs 'ID'"),
        ("< POWER_MODEL ID=x NAME=MAXN >", "line 1"),
        ("< POWER_MODEL ID=0 NAME=MAXN >\nGPU MAX_FREQ", "line 2: 'GPU MAX_FREQ' is not PARAM, KEY and VALUE"),
        ("< PARAM TYPE=FILE NAME=A;B >\n", "'A;B' is not a name"),
    ],
)
def test_a_damaged_configuration_is_said_with_its_line(text: str, said: str):
    with pytest.raises(TareError, match=r"nvpmodel\.conf") as error:
        parse_conf(text)
    assert said in str(error.value)


def test_a_path_outside_sys_is_never_a_file_of_a_param():
    conf = parse_conf("< PARAM TYPE=FILE NAME=X >\nA /etc/passwd\nB /sys/../etc/passwd\nC /sys/kernel/x\n")
    assert conf.params["X"].files == {"C": "/sys/kernel/x"}


SHOWN = """SOC family:tegra234  Machine:NVIDIA Jetson Orin Nano Developer Kit
Online CPUs: 0-5, Offline CPUs:
cpu0:  Governor=schedutil MinFreq=729600 MaxFreq=1510400 CurrentFreq=1420800 IdleStates: WFI=1 c7=1
cpu1: Online=1 Governor=schedutil MinFreq=1510400 MaxFreq=1510400 CurrentFreq=1510400 IdleStates: WFI=0 c7=0
GPU MinFreq=306000000 MaxFreq=624750000 CurrentFreq=306000000
Active GPU TPCs: 4
EMC MinFreq=204000000 MaxFreq=2133000000 CurrentFreq=2133000000 FreqOverride=0
FAN Dynamic Speed Control=nvfancontrol hwmon0_pwm1=62
NV Power Mode: 15W
"""


def test_what_jetson_clocks_shows_is_read_from_old_and_new_releases():
    shown = named_mode.parse(SHOWN)
    assert set(shown) == {"cpu0", "cpu1", "GPU", "EMC"}
    assert shown["cpu0"]["MaxFreq"] == "1510400"
    assert shown["EMC"]["FreqOverride"] == "0"
