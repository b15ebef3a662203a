from __future__ import annotations

import pytest
from pydantic import ValidationError

from tare.parts.controls.power import PowerMode
from tare.plan.matrix import cells
from tare.studies.model import Study
from tare.testing import FakeHost

LINE = ["MAXN", {"cores": 4, "cpu_mhz": 1200, "gpu_mhz": 670, "mem_mhz": 1333}, {"cores": [1, 2], "cpu_mhz": 1200}]


def study(**control: object) -> Study:
    plain = {"study": "modes", "platform": "bare", "workload": {"command": {"argv": ["true"]}}, "control": control}
    return Study.model_validate(plain)


def test_a_list_of_names_and_tuples_makes_a_level_each_with_a_name_of_its_own():
    names = [cell.settings["control.power_mode.mode"] for cell in cells(study(power_mode=LINE))]
    assert names == [
        "MAXN",
        "4 cores, CPU 1200 MHz, GPU 670 MHz, memory 1333 MHz",
        "1 core, CPU 1200 MHz",
        "2 cores, CPU 1200 MHz",
    ]


def test_levels_are_compared_by_their_names():
    made = study(power_mode=LINE)
    assert made.compare.by == "control.power_mode.mode"
    assert made.compare.against == {"control.power_mode.mode": "MAXN"}


def test_numbers_stay_numbers_in_the_records():
    last = cells(study(power_mode=LINE))[-1].settings
    assert (last["control.power_mode.cores"], last["control.power_mode.cpu_mhz"]) == (2, 1200.0)


def test_a_tuple_can_be_excluded_by_one_of_its_fields():
    plain = study(power_mode=LINE).as_plain() | {"exclude": [{"control.power_mode.cores": 1}]}
    assert len(cells(Study.model_validate(plain))) == 3


def test_a_label_is_no_name_and_a_name_no_label():
    label = PowerMode(cores=4, gpu_mhz=670)
    assert label.request().asked() == {"cores", "gpu_mhz"}
    assert PowerMode.model_validate(label.fields()) == label
    assert PowerMode.model_validate({"mode": 2}).request().mode == "2"
    assert PowerMode.model_validate({"mode": "15W", "gpu_mhz": 670}).request().asked() == {"mode", "gpu_mhz"}


@pytest.mark.parametrize(
    "fields",
    [{"mode": "a b"}, {"mode": "../x"}, {"mode": True}, {"cores": 0}, {"cores": 1.5}, {"cpu_mhz": -1},
     {"gpu_mhz": "fast"}, {"governor": "a b"}, {"governor": "../../x"}, {"boost": "yes"}, {"fan": 1}],
)  # fmt: skip
def test_what_is_no_mode_is_refused(fields: dict[str, object]):
    with pytest.raises(ValidationError):
        PowerMode.model_validate(fields)


def test_nothing_asked_for_and_a_device_that_has_nothing_are_said():
    assert "nothing is requested" in str(PowerMode().obstacles(FakeHost())[0])
    assert "this device has no such thing" in str(PowerMode(gpu_mhz=1000).obstacles(FakeHost())[0])
    assert "no modes with names but MAXN" in str(PowerMode(mode="15W").obstacles(FakeHost())[0])
    assert "nothing on this device can be set" in str(PowerMode(mode="MAXN").obstacles(FakeHost())[0])
