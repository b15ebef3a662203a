"""dask.distributed, as a run over a fleet uses it: a scheduler and one worker a device here, or someone's cluster."""

from __future__ import annotations

import asyncio
import math
import queue
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from tare.base.errors import ObstacleError, TareError
from tare.base.installed import pip_install
from tare.fleet.dask_processes import Host, Processes, allow_many_files, groups
from tare.fleet.data_only import refuse_code
from tare.records.model import grouped

GONE = (
    "dask's scheduler is gone, so the run over the fleet has ended. The devices finish the trials that they are at and "
    "keep the records; the same command collects them and resumes."
)
_SCHEDULER_ANSWERS_WITHIN_S = 15.0
_AT_ONCE = 100  # answers that are on their way, or here and not asked for yet: so many records are held in memory
_MANY, _LULL_S = 50, 0.1  # where so many are asked, answers are waited for so long, and taken in together
_COMING_UP = 8  # processes of workers: more would only keep each other, and the scheduler, from coming up in time
_LOOK_AT_WORKERS_S = 3.0
NOWHERE = ""  # the address of a worker that is not there
_LOST = object()  # in the place of an answer, where the process is dead that had it
_INSTALL = "a fleet runs on dask.distributed: `{}`."


class WorkerLost(TareError):
    """The worker that a question was given to has died, and the question with it."""


class SchedulerGone(TareError):
    """There is nobody left to hand questions to workers, and the run is over."""

    def __init__(self) -> None:
        super().__init__(GONE)


@dataclass(eq=False)
class PendingQuestion:
    """A question on its way to a device."""

    name: str  # the device's, and its worker's
    future: Any = None  # dask's, once it is sent
    host: Host | str | None = None  # what had the worker when it was asked: a process of ours, or an address


class Cluster(Protocol):
    """Where questions to devices are run, each on the worker that has the device's name."""

    def submit(self, name: str, key: str, function: Callable[..., Any], *arguments: Any) -> Any: ...
    def over(self, within_s: float) -> Sequence[Any]: ...  # those that have ended since it was called last
    def result(self, pending: Any) -> Any: ...  # of one that is over; raises `WorkerLost`, or what the question raised
    def replace(self, pending: Any) -> None: ...  # another worker in the place of the one that was lost with this
    def queued(self) -> Collection[str]: ...  # devices whose workers are still to come, and may take hours to
    def check(self) -> None: ...  # raises `SchedulerGone`
    def close(self) -> None: ...


class _Dask:
    """What any cluster of dask can do."""

    _client: Any = None

    def __init__(self) -> None:
        # Those that have ended, and those that were fetched.
        self._news: queue.SimpleQueue[PendingQuestion] = queue.SimpleQueue()
        self._open: dict[PendingQuestion, None] = {}
        self._ended: deque[PendingQuestion] = deque()  # whose answers are still where they were made
        self._fetching: set[PendingQuestion] = set()
        self._fetched: dict[PendingQuestion, Any] = {}  # filled by dask's loop, before it is told
        self._outcomes: dict[PendingQuestion, Any] = {}

    def submit(self, name: str, key: str, function: Callable[..., Any], *arguments: Any) -> PendingQuestion:
        """On this worker and no other, one at a time, and once: what failed is ours to look at."""
        pending = PendingQuestion(name)
        self._open[pending] = None
        send = partial(
            self._client.submit, function, *arguments, key=key, workers=[name], allow_other_workers=False, retries=0,
            resources={"device": 1}, pure=False,
        )  # fmt: skip
        self._send(pending, send)
        return pending

    def _leave(self, within_s: float = 2.0) -> None:
        """Close the client; connections for which that is too short break when the processes end."""
        if self._client is not None:
            with suppress(TimeoutError):
                self._client.close(timeout=within_s)

    def _send(self, pending: PendingQuestion, send: Callable[[], Any]) -> None:
        from distributed.client import done_callback

        pending.future, pending.host = send(), self._host_of(pending.name)
        # In dask's loop itself: `Future.add_done_callback` hands each to a thread that hands it on.
        self._client.loop.add_callback(done_callback, pending.future, lambda _: self._news.put(pending))

    def over(self, within_s: float) -> list[PendingQuestion]:
        """Waits for the first news. Asking dask about all of them each time would cost as much as there are devices."""
        outcomes: dict[PendingQuestion, Any] = {}
        for pending in self._take_news(within_s):
            if pending not in self._open:
                continue  # it was lost meanwhile
            if pending not in self._fetching:
                self._ended.append(pending)
            elif pending in self._fetched:
                outcomes[pending] = self._fetched.pop(pending)
        if dead := self._dead_hosts():
            outcomes |= {pending: _LOST for pending in self._open if pending.host in dead and pending not in outcomes}
        for pending, outcome in outcomes.items():
            del self._open[pending]
            self._fetching.discard(pending)
            self._fetched.pop(pending, None)
            self._outcomes[pending] = outcome
        self._fetch_more()
        return list(outcomes)

    def _fetch_more(self) -> None:
        """Each answer is fetched once, for as long as it takes: what is large on a slow line holds up no other."""
        some: list[PendingQuestion] = []
        while self._ended and len(self._fetching) < _AT_ONCE:
            if (pending := self._ended.popleft()) in self._open:
                self._fetching.add(pending)
                some.append(pending)
        if some:  # dask's loop is woken once for all of them
            asyncio.run_coroutine_threadsafe(self._fetch(some), self._client.loop.asyncio_loop)

    async def _fetch(self, some: Sequence[PendingQuestion]) -> None:
        await asyncio.gather(*map(self._fetch_one, some))

    async def _fetch_one(self, pending: PendingQuestion) -> None:
        """The answer, from the worker that has it; an exception where one has come of the question."""
        try:
            self._keep(pending, await pending.future.result())
        except (Exception, CancelledError, asyncio.CancelledError) as error:
            self._keep(pending, error)

    def _keep(self, pending: PendingQuestion, answer: Any) -> None:
        if pending in self._open:  # else it was declared lost
            self._fetched[pending] = answer
        self._news.put(pending)

    def result(self, pending: PendingQuestion) -> Any:
        from distributed.scheduler import KilledWorker

        outcome = self._outcomes.pop(pending)
        if outcome is _LOST:
            if pending.future is not None:
                pending.future.cancel()
            raise WorkerLost(f"{pending.name}: the process of its worker has ended.")
        if isinstance(outcome, KilledWorker):
            raise WorkerLost(f"{pending.name}: its worker died with this question.") from outcome
        if isinstance(outcome, CancelledError | asyncio.CancelledError):
            raise SchedulerGone from outcome
        if type(outcome) is Exception and outcome.args and isinstance(outcome.args[0], bytes):
            raise WorkerLost(f"{pending.name}: its worker ended with an error that is not accepted.") from outcome
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def queued(self) -> Collection[str]:
        return ()

    def check(self) -> None:
        if self._client.status in ("closed", "closing"):
            raise SchedulerGone

    def _host_of(self, name: str) -> Host | str | None:
        return None

    def _dead_hosts(self) -> set[Host | str | None]:
        return set()

    def _take_news(self, within_s: float) -> list[PendingQuestion]:
        found: list[PendingQuestion] = []
        with suppress(queue.Empty):
            found.append(self._news.get(timeout=within_s))
            if len(self._open) >= _MANY:
                time.sleep(_LULL_S)
            while len(found) < _AT_ONCE:
                found.append(self._news.get_nowait())
        return found


class OwnCluster(_Dask):
    """A scheduler and workers that live as long as this run; many workers share a process."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        try:
            import distributed
        except ImportError as error:
            raise ObstacleError(_INSTALL.format(pip_install("fleet"))) from error
        self._hosts: dict[str, Host] = {}
        self._replaced: set[Host | str | None] = set()
        refuse_code()
        allow_many_files()
        distributed.comm.utils.OFFLOAD_THRESHOLD = 0  # as in TUNED
        self._processes = Processes()
        try:
            started: list[Host] = []
            for group in groups(names):
                if len(started) >= _COMING_UP:
                    self._processes.await_host(started[-_COMING_UP], _COMING_UP)
                started.append(self._processes.start_host(group))
                self._hosts |= dict.fromkeys(group, started[-1])
            # Records come straight from the workers: through the scheduler they would come by 512 lines at most.
            self._client = distributed.Client(
                self._processes.address, security=self._processes.security(), direct_to_workers=True,
                connection_limit=2 * len(names) + 16,
            )  # fmt: skip
            for host in started:
                self._processes.await_host(host, min(len(started), _COMING_UP))
        except BaseException:
            self.close()
            raise
        self.folder = self._processes.folder

    @property
    def pids(self) -> Mapping[str, int]:
        """The process that has the worker of each device, for whoever looks for it."""
        return {name: host.process.pid for name, host in self._hosts.items()}

    @property
    def scheduler_pid(self) -> int:
        return self._processes.scheduler.pid

    def check(self) -> None:
        if self._processes.scheduler.poll() is not None:
            raise SchedulerGone

    def replace(self, pending: PendingQuestion) -> None:
        """The process again with all of its workers, unless the loss of another one has led to that already."""
        host = self._hosts[pending.name]
        if host is not pending.host:
            return
        host.end()
        self._replaced.add(host)
        fresh = self._processes.start_host(host.names)
        self._hosts |= dict.fromkeys(host.names, fresh)
        self._processes.await_host(fresh)

    def close(self) -> None:
        self._leave(2 + len(self._hosts) / 200)
        self._processes.close()

    async def _fetch(self, some: Sequence[PendingQuestion]) -> None:
        """All answers of one process in one message: dask would ask each worker, and the scheduler for each of them."""
        made = grouped((each for each in some if each.future.status == "finished"), lambda each: each.host)
        failed = [self._fetch_one(each) for each in some if each.future.status != "finished"]
        await asyncio.gather(*failed, *(self._fetch_from(host, its) for host, its in made.items()))

    async def _fetch_from(self, host: Any, some: Sequence[PendingQuestion]) -> None:
        answers: dict[str, Any] = {}
        with suppress(Exception):  # what does not come is fetched as dask does it, which says why
            answers = await self._client.rpc(host.address).answers(asked=[(one.name, one.future.key) for one in some])
        for pending in some:
            if pending.future.key in answers:
                self._keep(pending, answers[pending.future.key])
        await asyncio.gather(*(self._fetch_one(one) for one in some if one.future.key not in answers))

    def _host_of(self, name: str) -> Host | str | None:
        return self._hosts[name]

    def _dead_hosts(self) -> set[Host | str | None]:
        return self._replaced | {host for host in set(self._hosts.values()) if host.is_dead}


class ThereCluster(_Dask):
    """A cluster that someone else runs; each of its workers is, or drives, the device of its name."""

    def __init__(self, address: str | None) -> None:
        """Without an address: whoever inherits this makes the client itself."""
        super().__init__()
        self._addresses: dict[str, str] = {}  # of the workers, by name
        self._looked_s = -math.inf
        if address is None:
            return
        try:
            from distributed import Client
        except ImportError as error:
            raise ObstacleError(_INSTALL.format(pip_install("fleet"))) from error
        refuse_code()
        try:
            self._client = Client(address, timeout=15)
        except (OSError, ValueError, TypeError) as error:
            raise ObstacleError(
                f"no dask cluster at {address} that takes us: {error}\n"
                "Its keys come from dask's own settings (DASK_DISTRIBUTED__COMM__TLS__...)."
            ) from error

    def names(self) -> list[str]:
        """The workers that may be used: those that say `--resources device=1`."""
        return sorted(name for name, worker in workers_of(self._client).items() if worker["resources"].get("device"))

    def replace(self, pending: PendingQuestion) -> None:
        raise TareError(f"the worker {pending.name} is gone, and is not ours to start again.")

    def close(self) -> None:
        self._leave()

    def _host_of(self, name: str) -> Host | str | None:
        return self._now().get(name, NOWHERE)

    def _dead_hosts(self) -> set[Host | str | None]:
        """A question stays with its worker's address; a scheduler that is not ours may have it wait there for ever."""
        return {pending.host for pending in self._open} - set(self._now().values())

    def _now(self) -> Mapping[str, str]:
        """Where the workers are; looked up every few seconds. That the scheduler is gone is said by `check`."""
        if time.monotonic() - self._looked_s > _LOOK_AT_WORKERS_S:
            with suppress(OSError):
                self._addresses = {name: worker["address"] for name, worker in workers_of(self._client).items()}
            self._looked_s = time.monotonic()
        return self._addresses


def workers_of(client: Any) -> dict[str, Any]:
    """The workers that the scheduler knows now, by name."""
    known = client.sync(_workers, client, callback_timeout=_SCHEDULER_ANSWERS_WITHIN_S)
    return {str(worker["name"]): {**worker, "address": address} for address, worker in known.items()}


async def _workers(client: Any) -> dict[str, Any]:
    """Asked of the scheduler itself: what the client keeps of it may be without workers."""
    found: dict[str, Any] = (await client.scheduler.identity(n_workers=-1))["workers"]
    return found
