"""How workers are shared out over processes.

What comes back from a cluster is data: code in it is not run, and nonsense is one device's own trouble.
"""

from __future__ import annotations

import os
import pickle
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.base.errors import StudyError, TareError
from tare.fleet.clusters import over_tls
from tare.fleet.dask_processes import PER_HOST, groups
from tare.fleet.data_only import NotData, loads
from tare.fleet.exchange import ENDED, Questions, checked_answer
from tare.fleet.inspection import _misshapen
from tare.fleet.inventory import Device


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
from tare.fleet.data_only import refuse_code
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
    [("10.0.0.1:8786", "tls://10.0.0.1:8786"), ("tls://x:1", "tls://x:1"), ("tcp://127.0.0.1:9", "tcp://127.0.0.1:9"),
     ("tcp://127.8.0.1", "tcp://127.8.0.1"), ("tcp://[::1]:9", "tcp://[::1]:9"), ("[fe80::1]:9", "tls://[fe80::1]:9")],
)  # fmt: skip
def test_tls_is_what_is_meant(address: str, used: str):
    assert over_tls(address) == used


@pytest.mark.parametrize(
    "address",
    ["tcp://10.0.0.1:8786", "tcp://127.0.0.1.evil.example:8786", "tcp://localhost:8786", "tcp://127.1:8786",
     "tcp://0.0.0.0:8786", "tcp://[::ffff:10.0.0.1]:8786", "tcp://2130706433:8786"],
)  # fmt: skip
def test_plain_tcp_to_what_may_be_another_machine_is_refused(address: str):
    with pytest.raises(StudyError, match="not encrypted"):
        over_tls(address)


@pytest.mark.parametrize(
    "address",
    ["tcp://127.0.0.1@evil.example", "TCP://10.0.0.1", "ws://10.0.0.1:8786", " tcp://10.0.0.1:8786",
     "tcp://127.0.0.1:1@evil:2", "tcp://127.0.0.1/..", "tcp://127.0.0.1:9\n", "inproc://10.0.0.1/1/1", "ucx://10.0.0.1:1",
     "tls+tcp://10.0.0.1", "tcp://[::1%eth0]:9", "wss://x:1", "tls://", "", "tcp://\uff11\uff12\uff17.0.0.1:1"],
)  # fmt: skip
def test_what_is_neither_tls_nor_tcp_to_a_host_and_a_port_is_refused(address: str):
    with pytest.raises(StudyError, match="no address of a cluster"):
        over_tls(address)


class Called:
    """What a device sends to have something called with arguments of its own."""

    def __init__(self, made: Any, *args: Any) -> None:
        self.parts = (made, args)

    def __reduce__(self) -> Any:
        return self.parts


@pytest.mark.parametrize(
    "message",
    [pickle.dumps(Called(bytes, 525 << 20)), pickle.dumps(Called(bytearray, 525 << 20)),
     pickle.dumps(Called(list, "x")),
     pickle.dumps(Called(int, "9")), b"\x80\x02K\x00r\xff\xff\xff\x03.", b"K\x00p99999999\n.", b"\x80\x04\x96"],
    ids=["bytes", "bytearray", "list", "int", "a number for a thing", "the same as text", "cut off"],
)  # fmt: skip
def test_a_message_of_few_bytes_makes_nothing_large(message: bytes):
    tracemalloc.start()
    try:
        with pytest.raises(NotData):
            loads(message)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_text_of_an_exception_is_no_longer_than_what_came():
    came = loads(pickle.dumps([ValueError("x", 3, None), Called(ValueError, many_times()), KeyError(many_times())]))

    assert [type(each).__name__ for each in came] == ["ValueError", "ValueError", "KeyError"]
    assert isinstance(came[0], ValueError)
    assert [each.args for each in came] == [("x", "3", "None"), ("...",), ("...",)]


def test_what_an_exception_is_to_be_afterwards_is_passed_over():
    error = ValueError("x")
    error.args_of_mine = many_times()  # type: ignore[attr-defined]
    error.__notes__ = [many_times()]

    (came,) = loads(pickle.dumps([error]))

    assert came.args == ("x",)
    assert not vars(came)


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
