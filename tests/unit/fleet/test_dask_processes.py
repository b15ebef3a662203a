"""How workers are shared out over processes.

What comes back from a cluster is data: code in it is not run, and nonsense is one device's own trouble.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.base.errors import StudyError, TareError
from tare.fleet.dask_processes import PER_HOST, NotData, groups, loads, over_tls
from tare.fleet.exchange import ENDED, Questions, checked_answer
from tare.fleet.inventory import Device
from tare.fleet.readiness import _misshapen


class Attack:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.path),))


def test_a_pickle_that_names_code_is_not_run(tmp_path: Path):
    with pytest.raises(NotData, match="mkdir"):
        loads(pickle.dumps({"ended": Attack(tmp_path / "made")}))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_come_through(protocol: int):
    answer = {"ended": "answered", "said": {"code": 0, "list": [1.5, None, True]}, "records": b"\0tar", "broken": []}
    if protocol >= 3:  # bytes of protocol 2 are made by a function
        assert loads(pickle.dumps(answer, protocol)) == answer


@pytest.mark.machine("distributed")
def test_dask_itself_loads_data_alone_in_a_controller(tmp_path: Path):
    import subprocess
    import sys

    script = f"""
import os
from tare.fleet.dask_processes import refuse_code
class Attack:
    def __reduce__(self):
        return (os.mkdir, ({str(tmp_path / "made")!r},))
from distributed.protocol import dumps, loads, to_serialize
evil = [dumps({{"result": to_serialize(Attack())}}), dumps({{"msg": Attack()}})]
plain = dumps({{"result": to_serialize({{"said": {{"code": 0}}, "records": b"x"}})}})
refuse_code()
for message in evil:
    try:
        loads(message)
    except Exception as error:
        print(type(error).__name__)
print(loads(plain)["result"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["NotData", "NotData", "{'said': {'code': 0}, 'records': b'x'}"]
    assert not (tmp_path / "made").exists()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
ANSWERS = st.fixed_dictionaries(
    {},
    optional={
        "ended": st.sampled_from(sorted(ENDED)) | JSON,
        "said": st.fixed_dictionaries({}, optional={"code": st.integers() | JSON, "text": JSON}) | JSON,
        "records": st.binary(max_size=8) | JSON,
        "broken": st.lists(st.text(max_size=4), max_size=2) | JSON,
        "text": st.text(max_size=8) | JSON,
    },
)


@given(ANSWERS | JSON)
def test_an_answer_of_any_shape_is_an_answer_or_this_devices_trouble(found: Any):
    cluster = SimpleNamespace(result=lambda pending: found)
    device = Device(name="a", address="a.example")
    answer = Questions(cluster, 1.0).answer(device, object())  # type: ignore[arg-type]
    assert answer["ended"] in ENDED
    assert isinstance(answer["text"], str)
    assert isinstance(answer.get("records", b""), bytes)
    assert isinstance(answer.get("said", {}).get("code"), int | None)


def test_depth_is_bounded():
    deep: Any = {}
    for _ in range(500):
        deep = {"a": deep}
    with pytest.raises(TareError, match="deep"):
        checked_answer({"ended": "answered", "said": deep, "broken": []})


@given(JSON)
def test_a_look_of_any_shape_is_told_apart_without_an_error(found: Any):
    assert _misshapen(found)


@pytest.mark.parametrize(
    ("address", "used"),
    [("10.0.0.1:8786", "tls://10.0.0.1:8786"), ("tls://x:1", "tls://x:1"), ("tcp://127.0.0.1:9", "tcp://127.0.0.1:9")],
)
def test_tls_is_what_is_meant(address: str, used: str):
    assert over_tls(address) == used


def test_plain_tcp_to_another_machine_is_refused():
    with pytest.raises(StudyError, match="not encrypted"):
        over_tls("tcp://10.0.0.1:8786")


def bottomless() -> list[Any]:
    """A list that holds itself twice: of no size, and without an end."""
    made: list[Any] = []
    made += [made, made]
    return made


def many_times() -> list[Any]:
    """Forty lists, of which each holds the one before it ten times: a pickle of a few hundred bytes."""
    made: list[Any] = [0]
    for _ in range(40):
        made = [made] * 10
    return made


@pytest.mark.parametrize(
    "said",
    [{"endings": [{"claim": b"x"}]}, {"endings": [{"code": {1, 2}}]}, {"a": ValueError("x")}, {"a": float("nan")},
     {"a": bottomless()}, {"a": many_times()}, {"a": (many_times(),)}, {"a": tuple(bottomless())}],
    ids=["bytes", "a set", "an exception", "no number", "without end", "many times", "in a tuple", "a tuple"],
)  # fmt: skip
def test_what_is_no_json_is_that_devices_trouble_before_anybody_writes_it_down(said: Any):
    """All of these are data, and come through dask; the ledger of a run is JSON."""
    came = loads(pickle.dumps({"ended": "answered", "said": said, "broken": []}))
    answer = Questions(SimpleNamespace(result=lambda pending: came), 1.0).answer(  # type: ignore[arg-type]
        Device(name="a", address="a.example"), object()
    )
    assert answer["ended"] == "refused"
    assert "what it reports is no JSON" in answer["text"]


@pytest.mark.parametrize(
    ("devices", "processes"), [(1, 1), (PER_HOST, 1), (PER_HOST + 1, 2), (1000, -(-1000 // PER_HOST))]
)
def test_few_processes_hold_all_workers_once_and_about_as_many_each(devices, processes):
    names = [f"dev-{number}" for number in range(devices)]
    shared = groups(names)
    assert len(shared) == processes
    assert sorted(name for group in shared for name in group) == sorted(names)
    assert max(map(len, shared)) - min(map(len, shared)) <= 1
    assert max(map(len, shared)) <= PER_HOST


def test_no_devices_need_no_process():
    assert groups([]) == []
