"""Requests are answered: one after another or several at a time, as they come or as soon as the one before is done.

A request is a batch of items. It arrives when a thread is free for it (`arrivals` absent), or at its own time, which
does not depend on how quick the answers are. From its arrival its clock runs: a request that waits for a thread is
waiting, and that is its `fetch`; a thread that waits for a request is idle, and that is in no step.
"""

import random
import threading
import time

from tare_inside import marks


def poisson_ns(requests, rate_per_s, seed):
    """When each request arrives, after the start: independent of each other, so many a second on average."""
    chance = random.Random(seed)
    at_s, arrivals = 0.0, []
    for _ in range(requests):
        at_s += chance.expovariate(rate_per_s)
        arrivals.append(int(at_s * 1e9))
    return arrivals


def batches(requests, batch, items):
    """The items of each request, as ranges: through the data in order, and from the start again when they are over."""
    rounds = items // batch
    if rounds == 0:
        raise ValueError("a batch of {} needs {} items and there are {}: lower `batch`.".format(batch, batch, items))
    return [range((number % rounds) * batch, (number % rounds + 1) * batch) for number in range(requests)]


def serve(handle, asked, concurrency=1, arrivals=None, within=None):
    """Answer all requests; ([what `handle` gave for each], when the first began, when the last ended).

    `handle(step, items, since_ns)` answers one; `within(work)` says what each thread is to run in. The first problem
    ends all of it.
    """
    answers = [None] * len(asked)
    numbers, problems = iter(range(len(asked))), []
    taking = threading.Lock()
    start_ns = marks.now_ns()

    def work():
        try:
            while not problems:
                with taking:
                    number = next(numbers, None)
                if number is None:
                    return
                since_ns = marks.now_ns() if arrivals is None else _awaited(start_ns + arrivals[number])
                answers[number] = handle(number, asked[number], since_ns)
        except Exception as problem:
            problems.append(problem)

    _side_by_side(within(work) if within else work, concurrency)
    if problems:
        raise problems[0]
    return answers, start_ns, marks.now_ns()


def _awaited(due_ns):
    """Sleep until then; the time at which it was due, for whatever comes later is part of the wait."""
    left_ns = due_ns - marks.now_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)
    return due_ns


def _side_by_side(work, concurrency):
    """Run `work` in so many threads; one alone runs here, where no other thread can take the interpreter from it."""
    if concurrency == 1:
        work()
        return
    threads = [threading.Thread(target=work, name="request-{}".format(number)) for number in range(concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
