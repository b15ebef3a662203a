"""The built-in inference program: `python -m tare_inside.workloads.programs.infer JOB`.

JOB is JSON or the path of a file.

A job names a `model`, which runs on data that lie in memory, or an `application`, which goes from files to answers.
Marks, per request (a batch of items): `fetch` (the wait for a thread, and for a network taking the data), `copy` (to
the device), `inference` and, meaning the same, `compute`, and `step`: from its arrival to its end, which is its
latency; an application also has `pre_process` and `post_process`. Requests in flight have step numbers of their own.
On a GPU `gpu_step` and `gpu_idle` come from CUDA events, and with `timing: async` nobody waits for it: the marks above
are the events' own, beside the host's `host_fetch`, `host_copy`, `host_inference`, `host_step`.

The same seed gives the same weights and so the same answers; their digest shows that two runs did the same work.
Making the network ready (export, compilation) and the warm-up come before the first step and are marked apart.

Requests are answered: one after another or several at a time, as they come or as soon as the one before is done.

A request is a batch of items. It arrives when a thread is free for it (`arrivals` absent), or at its own time, which
does not depend on how quick the answers are. From its arrival its clock runs: a request that waits for a thread is
waiting, and that is its `fetch`; a thread that waits for a request is idle, and that is in no step.
"""

import gc
import hashlib
import json
import os
import random
import sys
import threading
import time

import torch

from tare_inside import BEGAN_NS, activity, gpu, marks
from tare_inside.gpu import GpuClock
from tare_inside.launch import wait_for_the_others
from tare_inside.workloads.programs import running, tasks
from tare_inside.workloads.programs.running import program, read_job


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


def serve(handle, requested, concurrency=1, arrivals=None, within=None):
    """Answer all requests; ([what `handle` gave for each], when the first began, when the last ended).

    `handle(step, items, since_ns)` answers one; `within(work)` says what each thread is to run in. The first problem
    ends all of it.
    """
    answers = [None] * len(requested)
    numbers, problems = iter(range(len(requested))), []
    taking = threading.Lock()
    start_ns = marks.now_ns()

    def work():
        try:
            while not problems:
                with taking:
                    number = next(numbers, None)
                if number is None:
                    return
                since_ns = marks.now_ns()
                if arrivals is not None:  # the time at which it was due: whatever comes later is part of the wait
                    begin_ns, since_ns = since_ns, start_ns + arrivals[number]
                    if since_ns > begin_ns:
                        time.sleep((since_ns - begin_ns) / 1e9)
                answers[number] = handle(number, requested[number], since_ns)
        except Exception as problem:
            problems.append(problem)

    _side_by_side(within(work) if within else work, concurrency)
    if problems:
        raise problems[0]
    return answers, start_ns, marks.now_ns()


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


EVENTS_A_STEP = len(gpu.INFERENCE) + 1
GPU_MARKS_A_STEP = 16
MARKS_APART = 64
SHOWN_CHARACTERS = 200
SHOWN = ("steps", "answers_digest", "answer")


def made_ready(job, room):
    """(the task, where its tensors are wanted, how long that took); marks are open from here on, `room` of them."""
    if job.get("threads") is not None:
        torch.set_num_threads(job["threads"])
    torch.backends.cudnn.deterministic = True
    imported_ns = marks.now_ns()
    marks.open_marks(job["marks"], room)
    marks.interval("imports", -1, BEGAN_NS, imported_ns)
    running.mark_device(torch, job["device"])
    begin_ns = marks.now_ns()
    task, tensors_on = (tasks.application if job.get("application") else tasks.in_memory)(job)
    end_ns = marks.now_ns()
    marks.interval("model_load", -1, begin_ns, end_ns)
    return task, tensors_on, (end_ns - begin_ns) / 1e9


def kind_of(job):
    """(what a request is put through, the names of its marks)."""
    if job.get("application"):
        return tasks.whole_application, tasks.APPLICATION
    return tasks.network_alone, tasks.NETWORK


def threads_of(job):
    """What each thread that answers requests runs in."""
    own_stream = job["device"] == "cuda" and job["concurrency"] > 1
    return tasks.in_own_stream if own_stream else tasks.without_gradients


def warmed_up(job, task, tensors_on, requests):
    """Answer so many requests without a mark; (their answers, their items)."""
    kind, _ = kind_of(job)
    requested = batches(requests, job["batch"], task.items)
    handle = kind(task, tasks.place(tensors_on, job["device"]), lambda step, *times_ns: None)
    begin_ns = marks.now_ns()
    answers, _, _ = serve(handle, requested, job["concurrency"], None, threads_of(job))
    marks.interval("warm_up", -1, begin_ns, marks.now_ns())
    return answers, requested


def gpu_clock(job, tensors_on):
    """The GPU's clock where one request at a time runs there; of several in flight its events could not be told."""
    if tensors_on == "cpu" or job["concurrency"] > 1 or job.get("application"):
        return None
    return GpuClock(torch.cuda, job["requests"] * EVENTS_A_STEP)


def marked_handler(job, task, tensors_on, clock):
    """What answers a request and marks it."""
    kind, names = kind_of(job)
    is_async = job["timing"] == "async"
    place = tasks.place(tensors_on, job["device"], clock.tick if clock else None, wait=not is_async)
    group = marks.group if job["concurrency"] == 1 else tasks.shared_group
    return kind(task, place, group(tasks.BESIDE_GPU if is_async else names, job["requests"]))


def served(job, task, tensors_on):
    """Answer all requests; what came of it."""
    requested, arrivals = batches(job["requests"], job["batch"], task.items), None
    if job.get("rate_per_s") is not None:
        arrivals = poisson_ns(job["requests"], job["rate_per_s"], job["seed"])
    clock = gpu_clock(job, tensors_on)
    handle = marked_handler(job, task, tensors_on, clock)
    window = None
    if job["device"] == "cuda" and job["concurrency"] == 1:
        window = activity.of_script(torch, os.path.dirname(job["marks"]))
        handle = handle if window is None else watched(handle, window)
    gc.collect()  # what came before: here, and not somewhere between two requests
    marks.point("ready")
    wait_for_the_others()
    before = running.used()
    if clock is not None:
        clock.start()
    answers, start_ns, end_ns = serve(handle, requested, job["concurrency"], arrivals, threads_of(job))
    reported = {}
    if clock is not None:
        clock.stop()
        end_ns = marks.now_ns() if job["timing"] == "async" else end_ns
        reported["gpu_clock"] = mark_by_events(job, clock, start_ns)
    after, spent_s = running.used(), 0.0
    if window is not None:
        after["cpu_train_s"] -= window.cpu_s
        spent_s = window.spent_until_s(end_ns)
        window.close()
    reported["metrics"] = figures(job, before, after, (end_ns - start_ns) / 1e9 - spent_s)
    reported.update(answer_digest(task, answers, requested))
    return reported


def watched(handle, window):
    """As `handle`, and the window hears of each request that is over."""

    def handle_and_tell(step, items, since_ns):
        answer = handle(step, items, since_ns)
        window.stepped(step)
        return answer

    return handle_and_tell


def mark_by_events(job, clock, start_ns):
    """Write the marks that the GPU's events tell of; how well its clock could be placed on the host's."""
    times_ns, reported = clock.place()
    steps = gpu.by_step(times_ns, gpu.INFERENCE)
    gpu.mark_gpu(steps, gpu.INFERENCE)
    if job["timing"] == "async":
        gpu.mark_steps(steps, [(start_ns, start_ns)] * len(steps), False)
        for step, events in enumerate(steps):
            marks.interval("inference", step, events[1], events[-1])
    return reported


def figures(job, before, after, seconds):
    """Figures of the timed requests as a whole, by the names that they have in a record."""
    return {
        "requests_per_s": job["requests"] / seconds,
        "items_per_s": job["requests"] * job["batch"] / seconds,
        "cpu_step_s": (after["cpu_train_s"] - before["cpu_train_s"]) / job["requests"],
        "minor_faults_inference": after["minor_faults_training"] - before["minor_faults_training"],
        "major_faults_inference": after["major_faults_training"] - before["major_faults_training"],
    }


def answer_digest(task, answers, requested):
    """A digest of all answers in the order of the requests, and the first of them for people to look at.

    A network on data in memory sees the same batches again and again: there each is looked at once.
    """
    if hasattr(task, "answers"):
        once = {items.start: outputs for items, outputs in reversed(list(zip(requested, answers)))}
        answers = [task.answers(once[start]) for start in sorted(once)]
    whole = json.dumps(answers, sort_keys=True)
    return {
        "answers_digest": hashlib.sha256(whole.encode("utf-8")).hexdigest(),
        "answer": json.dumps(answers[0][0])[:SHOWN_CHARACTERS],
    }


def run(job):
    """Answer requests as the job says; what came of it, as plain data."""
    job = dict({"timing": "sync"}, **job)
    room = job["requests"] * (tasks.MOST_MARKS + GPU_MARKS_A_STEP) + MARKS_APART
    task, tensors_on, ready_s = made_ready(job, room)
    warmed_up(job, task, tensors_on, job["warm_up"])
    outcome = served(job, task, tensors_on)
    outcome["metrics"]["model_load_s"] = ready_s
    outcome.update(steps=job["requests"], threads=torch.get_num_threads())
    return outcome


def main(arguments):
    return program(run, read_job(arguments[0]), SHOWN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
