"""How answers are fetched from dask's workers: each once, for as long as it takes, and none holds up another."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tare.fleet import cluster as cluster_module
from tare.fleet.cluster import OwnCluster, PendingQuestion, _Dask
from tare.fleet.dask_processes import PER_HOST

pytestmark = pytest.mark.machine("distributed")


class PretendFuture:
    """dask's: an answer that is there, and takes its time to come."""

    def __init__(self, answer: Any, comes: threading.Event | None = None) -> None:
        self._answer = answer
        self._comes = comes
        self.fetched = 0

    async def result(self, timeout: float | None = None) -> Any:
        self.fetched += 1
        while self._comes is not None and not self._comes.is_set():
            await asyncio.sleep(0.005)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class PretendClient:
    status = "running"

    def __init__(self) -> None:
        self.loop = SimpleNamespace(
            asyncio_loop=asyncio.new_event_loop(), add_callback=lambda _, future, call: call(future)
        )
        self._thread = threading.Thread(target=self.loop.asyncio_loop.run_forever)
        self._thread.start()

    def submit(self, function: Callable[[], PretendFuture], **_: Any) -> PretendFuture:
        return function()

    def close(self) -> None:
        self.loop.asyncio_loop.call_soon_threadsafe(self.loop.asyncio_loop.stop)
        self._thread.join()
        self.loop.asyncio_loop.close()


@pytest.fixture
def dask():
    made = _Dask()
    made._client = PretendClient()
    yield made
    made._client.close()


def ask(dask: _Dask, name: str, future: PretendFuture) -> PendingQuestion:
    return dask.submit(name, name, lambda: future)


def heard(dask: _Dask, wanted: set[PendingQuestion]) -> None:
    end_s = time.monotonic() + 20
    while wanted:
        assert time.monotonic() < end_s
        wanted = wanted - set(dask.over(0.1))


def test_an_answer_that_is_long_on_its_way_is_fetched_once_and_holds_up_no_other(dask):
    comes = threading.Event()
    future = PretendFuture("a large one", comes)
    slow, quick = ask(dask, "slow", future), ask(dask, "quick", PretendFuture("a small one"))
    heard(dask, {quick})
    assert dask.result(quick) == "a small one"
    for _ in range(3):
        assert dask.over(0.01) == []
    comes.set()
    heard(dask, {slow})
    assert dask.result(slow) == "a large one"
    assert future.fetched == 1


def test_a_question_that_timed_out_over_there_has_an_end(dask):
    asked = ask(dask, "one", PretendFuture(TimeoutError("over there")))
    heard(dask, {asked})
    with pytest.raises(TimeoutError, match="over there"):
        dask.result(asked)


def test_only_so_many_answers_are_held_at_once(dask, monkeypatch):
    monkeypatch.setattr(cluster_module, "_AT_ONCE", 2)
    comes = threading.Event()
    futures = [PretendFuture(number, comes) for number in range(5)]
    asked = [ask(dask, str(number), future) for number, future in enumerate(futures)]
    for _ in range(6):
        assert dask.over(0.01) == []
    assert sum(future.fetched for future in futures) == 2
    comes.set()
    heard(dask, set(asked))
    assert [dask.result(one) for one in asked] == [0, 1, 2, 3, 4]


def test_only_so_many_processes_of_workers_come_up_at_once(monkeypatch: pytest.MonkeyPatch):
    """All at once, a thousand workers and more keep each other and the scheduler from coming up in time."""
    coming: list[tuple[str, ...]] = []
    most = []

    class Pretended:
        address, folder = "", None

        def start_host(self, names: tuple[str, ...]) -> Any:
            coming.append(names)
            most.append(len(coming))
            return SimpleNamespace(names=names)

        def await_host(self, host: Any, together: int = 1) -> None:
            assert together <= cluster_module._COMING_UP
            if host.names in coming:
                coming.remove(host.names)

        def security(self) -> None: ...

    monkeypatch.setattr(cluster_module, "Processes", Pretended)
    monkeypatch.setattr("distributed.Client", lambda *_, **__: None)
    cluster_module.OwnCluster([f"dev-{number}" for number in range(20 * PER_HOST)])
    assert (len(most), max(most), coming) == (20, cluster_module._COMING_UP, [])


def test_a_client_that_takes_too_long_to_close_does_not_keep_the_processes_from_ending() -> None:
    ended, told_s = [], []

    def close(timeout: float) -> None:
        told_s.append(timeout)
        raise TimeoutError

    cluster = object.__new__(OwnCluster)
    cluster._client, cluster._hosts = SimpleNamespace(close=close), dict.fromkeys(map(str, range(10_000)))
    cluster._processes = SimpleNamespace(close=lambda: ended.append(True))
    cluster.close()
    assert ended == [True]
    assert told_s[0] > 30  # thousands of connections do not close within two seconds


def test_the_answers_of_one_process_come_in_one_message_and_what_it_has_not_as_dask_fetches_it(dask):
    """Asking each worker, and the scheduler for each of them, took a fifth of what a trial costs the controller."""
    asked_together: list[list[str]] = []
    own = object.__new__(OwnCluster)
    vars(own).update(vars(dask))

    class Host:
        address = "tls://127.0.0.1:1"

    def rpc(address: str) -> Any:
        async def answers(asked: list[tuple[str, str]]) -> dict[str, Any]:
            asked_together.append([name for name, _ in asked])
            return {key: f"{name}, together" for name, key in asked if name != "absent"}

        return SimpleNamespace(answers=answers)

    own._client.rpc = rpc
    host = Host()
    own._hosts = dict.fromkeys(("one", "two", "absent", "failed"), host)
    own._replaced = set()
    host.is_dead = False
    futures = {name: PretendFuture(f"{name}, alone") for name in own._hosts}
    futures["failed"] = PretendFuture(ValueError("over there"))
    for name, future in futures.items():
        future.key, future.status = name, "error" if name == "failed" else "finished"
    asked = {name: own.submit(name, name, lambda future=future: future) for name, future in futures.items()}
    heard(own, set(asked.values()))
    assert sorted(name for names in asked_together for name in names) == ["absent", "one", "two"]
    assert [own.result(asked[name]) for name in ("one", "two", "absent")] == [
        "one, together", "two, together", "absent, alone",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="over there"):
        own.result(asked["failed"])
    assert [futures[name].fetched for name in ("one", "absent", "failed")] == [0, 1, 1]
