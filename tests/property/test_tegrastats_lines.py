"""Any line of the grammar is parsed back to what it was made from, and no text at all raises."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.drivers.sensors import parse_line

RAILS = ["VDD_IN", "VDD_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "POM_5V_GPU", "GPU", "CPU", "SYS5V", "VDDRQ"]
SENSORS = ["cpu", "GPU", "tj", "soc0", "AO", "Tboard", "thermal", "PMIC"]
FRONTS = ["", "09-01-2025 10:55:25 ", "2025-09-01 10:55:25.123 "]
ENGINES = ["", "NVENC off NVDEC off", "APE 150", "MTS fg 0% bg 3%", "VIC_FREQ 0%@115", "NVDLA0 off NVJPG1    off"]

percents = st.integers(0, 100)
clocks = st.integers(0, 9999)
cores = st.lists(st.one_of(st.none(), st.tuples(percents, st.one_of(st.none(), clocks))), min_size=1, max_size=16)
milliwatts = st.lists(st.integers(0, 99_999), min_size=1, max_size=3)
temperatures = st.integers(-40_000, 120_000).map(lambda milli: milli / 1000)


@st.composite
def lines(draw):
    """The text of a line, and what it says."""
    used, total = draw(st.integers(0, 10**6)), draw(st.integers(1, 10**6))
    words, said = [f"RAM {used}/{total}MB (lfb 98x4MB)"], {"ram_used_bytes": used << 20, "ram_total_bytes": total << 20}
    if draw(st.booleans()):
        words.append(f"SWAP {used}/{total}kB (cached 1MB)")
        said["swap_used_bytes"] = used << 10
    found = draw(cores)
    words.append(f"CPU [{','.join(map(_core_text, found))}]")
    said["cpus"] = [_core(core) for core in found]
    for name, key in (("EMC_FREQ", "emc"), ("GR3D_FREQ", "gpu")):
        text, engine = draw(engines(key))
        words += [f"{name} {text}"] if text else []
        said |= engine
    words.append(draw(st.sampled_from(ENGINES)))
    temps = draw(st.dictionaries(st.sampled_from(SENSORS), temperatures))
    words += [f"{name}@{value:g}C" for name, value in temps.items()] + draw(st.sampled_from([[], ["CV1@-256C"]]))
    rails = draw(st.dictionaries(st.sampled_from(RAILS), milliwatts))
    unit = draw(st.sampled_from(["", "mW"]))
    words += [f"{name} {'/'.join(f'{value}{unit}' for value in values)}" for name, values in rails.items()]
    said |= {"temps_c": temps} if temps else {}
    said |= {"rails_w": {name: values[0] / 1000 for name, values in rails.items()}} if rails else {}
    blanks = draw(st.sampled_from([" ", "   ", "\t"]))
    return draw(st.sampled_from(FRONTS)) + blanks.join(words), said


@st.composite
def engines(draw, key):
    percent, clock = (
        draw(st.one_of(st.none(), percents)),
        draw(st.one_of(st.none(), clocks, st.lists(clocks, min_size=1))),
    )
    if percent is None and clock is None:
        return "", {}
    text = "" if percent is None else f"{percent}%"
    text += "" if clock is None else f"@[{','.join(map(str, clock))}]" if isinstance(clock, list) else f"@{clock}"
    said = {} if percent is None else {f"{key}_util": percent / 100}
    if clock is not None and key == "gpu":
        said["gpu_hz"] = (max(clock) if isinstance(clock, list) else clock) * 10**6
    return text, said


def _core_text(core):
    return "off" if core is None else f"{core[0]}%" + ("" if core[1] is None else f"@{core[1]}")


def _core(core):
    if core is None:
        return None
    return {"util": core[0] / 100} | ({} if core[1] is None else {"hz": core[1] * 10**6})


@given(lines())
def test_a_line_says_what_it_was_made_from(made):
    line, said = made
    found = parse_line(line)
    found.pop("power_total_w", None)
    assert found == said


@given(st.one_of(st.text(), st.binary().map(lambda data: data.decode("utf-8", "replace"))))
def test_garbage_never_raises(text):
    assert parse_line(text) is None or parse_line(text)


@given(lines(), st.data())
def test_a_line_that_was_cut_or_spoilt_never_raises_and_stays_json(made, data):
    line = made[0]
    at = data.draw(st.integers(0, len(line)))
    spoilt = line[:at] + data.draw(st.text(max_size=8)) + line[at + data.draw(st.integers(0, 20)) :]
    for text in (line[:at], line[at:], spoilt):
        json.dumps(parse_line(text), allow_nan=False)


@pytest.mark.parametrize(
    "hostile", ["RAM 1/2MB " + "A@1C/1C" * 20_000, "CPU [" + "1%," * 100_000, "VDD " + "1/" * 50_000]
)
def test_a_long_line_takes_no_long_time(hostile):
    parse_line(hostile)
