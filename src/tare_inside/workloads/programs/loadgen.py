"""The program that MLCommons LoadGen drives: `python -m tare_inside.workloads.programs.loadgen JOB`.

JOB is JSON or the path of a file.

LoadGen (module `mlperf_loadgen`) decides when a query comes and which samples it asks for, and times it with a clock
of its own, from the issue of a query to the report that it is done. What happens before, when samples are loaded into
memory, it does not time; MLPerf's reference programs pre-process there. `pre_process: untimed` does as they do,
`pre_process: timed` leaves that work to the query. In both cases it is marked and counted in our end-to-end time of a
sample: its wait, its part in the batch and, where it was done before, its pre-processing. How much longer than
LoadGen's figure that is, on average over all samples, is `loadgen_gap_s`.

Marks are those of `infer.py`, one step per batch of samples; where pre-processing was untimed it is
marked as `load`, with the sample as its step, and `join` is what is left of it in the query.

What LoadGen wrote: its summary as it stands, and the figures of its detailed log by their own names.

The detailed log has one JSON object a line after the word `:::MLLOG`; of it the results, the settings that were in
effect and the errors are taken.
"""

import collections
import io
import itertools
import json
import os
import sys
import threading

import torch

from tare_inside import marks
from tare_inside.launch import wait_for_the_others
from tare_inside.workloads.programs import infer, tasks
from tare_inside.workloads.programs.running import program, read_job

SUMMARY, DETAIL = "mlperf_log_summary.txt", "mlperf_log_detail.txt"
_WORD = ":::MLLOG "


def read(folder):
    """LoadGen's verdict, its reasons, results and settings; ValueError where its files say no result."""
    summary, detail = _text(folder, SUMMARY), entries(_text(folder, DETAIL))
    values = dict(detail)
    if "result_validity" not in values:
        errors = "; ".join(str(value) for key, value in detail if key and "error" in key and value)
        why = errors[:300] or "it ended early."
        raise ValueError("LoadGen left no result in {}: {}".format(os.path.join(folder, DETAIL), why))
    return {
        "result": values["result_validity"],
        "scenario": values.get("effective_scenario"),
        "version": values.get("loadgen_version"),
        "reasons": reasons(values),
        "results": _named(values, "result_"),
        "settings": _named(values, "effective_"),
        "summary": summary,
    }


def entries(text):
    """(key, value) of each line, in order; a line that is not whole is left out."""
    found = []
    for line in text.splitlines():
        if not line.startswith(_WORD):
            continue
        try:
            entry = json.loads(line[len(_WORD) :])
        except ValueError:
            continue
        found.append((entry.get("key"), entry.get("value")))
    return found


def reasons(values):
    """Why the result is not valid, in LoadGen's words; nothing where it is."""
    if values["result_validity"] == "VALID":
        return []
    reported = [values.get("result_invalid_reason"), values.get("early_stopping_result")]
    return [" ".join(text.split()) for text in reported if text and text.strip()]


def _named(values, start):
    return {key[len(start) :]: value for key, value in values.items() if key.startswith(start)}


def _text(folder, name):
    try:
        with io.open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as problem:
        raise ValueError("LoadGen wrote no {}: {}".format(name, problem.strerror))


MOST_STEPS = 100000  # that are marked; what comes after is counted as lost
LOADED = ("fetch", "join", "copy", "inference", "compute", "post_process", "step")
ABSENT = (
    "MLCommons LoadGen is not installed: `pip install mlcommons-loadgen` (wheels for x86-64; elsewhere pip builds it, "
    "which needs a C++ compiler)."
)
_NS = 1e9


class Loaded(object):
    """A task whose samples were pre-processed before they were asked for."""

    def __init__(self, task):
        self._task, self._samples = task, {}
        self.infer, self.post = task.infer, task.post
        self.pre_ns = {}

    def load(self, indices):
        """Pre-process each sample and keep it; how long that took is marked and noted."""
        for index in indices:
            begin_ns = marks.now_ns()
            self._samples[index] = self._task.pre([index])
            end_ns = marks.now_ns()
            marks.interval("load", index, begin_ns, end_ns)
            self.pre_ns[index] = end_ns - begin_ns

    def unload(self, indices):
        for index in indices:
            self._samples.pop(index, None)

    def pre(self, indices):
        return tasks.joined(self._task, [self._samples[index] for index in indices])


class Loop(object):
    """Threads that answer the samples that LoadGen issues, so many at once as have come, up to a batch."""

    def __init__(self, loadgen, handle, batch, pre_ns, within):
        self._loadgen, self._handle, self._batch, self.pre_ns = loadgen, handle, batch, pre_ns
        self._waiting, self._issued = collections.deque(), threading.Condition()
        self._steps = itertools.count()
        self._work = within(self._answering)
        self.end_to_end_ns = []
        self.problem = None
        self.over = threading.Event()

    def start(self, concurrency):
        for number in range(concurrency):
            threading.Thread(target=self._guarded, name="request-{}".format(number), daemon=True).start()

    def issue(self, samples):
        """LoadGen asks; it must not be kept waiting. All samples of a query are there at once."""
        issued_ns = marks.now_ns()
        with self._issued:
            self._waiting.extend((sample.id, sample.index, issued_ns) for sample in samples)
            self._issued.notify(len(samples))

    def flush(self):
        """LoadGen has issued its last query: nothing is held back here that this could hurry."""

    def _guarded(self):
        try:
            self._work()
        except Exception as problem:
            self.problem = problem
            self.over.set()

    def _answering(self):
        while True:
            taken, step = self._taken()
            indices = [index for _, index, _ in taken]
            self._handle(step, indices, taken[0][2])
            ended_ns = marks.now_ns()
            # Noted before LoadGen hears of it: after the last sample it would not wait for us.
            self.end_to_end_ns += [ended_ns - issued_ns + self.pre_ns.get(index, 0) for _, index, issued_ns in taken]
            respond = self._loadgen.QuerySampleResponse
            self._loadgen.QuerySamplesComplete([respond(identity, 0, 0) for identity, _, _ in taken])

    def _taken(self):
        """The sample that waited longest, and others that wait as well, never longer for more; and its step."""
        with self._issued:
            while not self._waiting:
                self._issued.wait()
            count = min(self._batch, len(self._waiting))
            return [self._waiting.popleft() for _ in range(count)], next(self._steps)


def settings(loadgen, job):
    """The job's fields in LoadGen's own words."""
    requested = loadgen.TestSettings()
    requested.scenario = getattr(loadgen.TestScenario, job["scenario"])
    requested.mode = loadgen.TestMode.PerformanceOnly
    requested.min_duration_ms = int(job["min_duration_s"] * 1e3)
    requested.min_query_count = job["min_queries"]
    if job.get("max_queries") is not None:
        requested.max_query_count = job["max_queries"]
    for name, value in _of_scenario(job).items():
        if value is not None:
            setattr(requested, name, value)
    return requested


def _of_scenario(job):
    """The fields that only the job's scenario has."""
    scenario, queries_per_s, percentile = job["scenario"], job["target_qps"], job.get("latency_percentile")
    if scenario == "Offline":
        return {"offline_expected_qps": float(queries_per_s)}
    if scenario == "Server":
        return {
            "server_target_qps": float(queries_per_s),
            "server_target_latency_ns": int(job["target_latency_s"] * _NS),
            "server_target_latency_percentile": percentile,
        }
    start = {"SingleStream": "single_stream_", "MultiStream": "multi_stream_"}[scenario]
    fields = {"expected_latency_ns": int(_NS / queries_per_s), "target_latency_percentile": percentile}
    if scenario == "MultiStream":
        fields["samples_per_query"] = job["samples_per_query"]
    return {start + name: value for name, value in fields.items()}


def log_settings(loadgen, folder):
    """Everything into one folder, nothing on the terminal, and no trace file: nobody would read it."""
    output, requested = loadgen.LogOutputSettings(), loadgen.LogSettings()
    output.outdir, output.copy_summary_to_stdout = folder, False
    requested.log_output, requested.enable_trace = output, False
    return requested


def driven(loadgen, job, task, loop, folder):
    """Let LoadGen ask until it has enough; a problem in a thread of ours is raised here."""
    loaded = getattr(task, "load", _nothing), getattr(task, "unload", _nothing)
    requested = settings(loadgen, job)

    def test():
        system = loadgen.ConstructSUT(loop.issue, loop.flush)
        library = loadgen.ConstructQSL(job["items"], job["items"], *loaded)
        loadgen.StartTestWithLogSettings(system, library, requested, log_settings(loadgen, folder), "")
        loadgen.DestroyQSL(library)
        loadgen.DestroySUT(system)
        loop.over.set()

    threading.Thread(target=test, name="loadgen", daemon=True).start()
    loop.over.wait()
    if loop.problem is not None:
        raise loop.problem


def _nothing(indices):
    """Data that lie in memory anyway need no loading."""


def run(job):
    """Be the system under test; LoadGen's own words and figures, and ours beside them."""
    try:
        import mlperf_loadgen as loadgen
    except ImportError:
        raise ValueError(ABSENT)
    job = dict(job, any_batch=True)
    room = MOST_STEPS * (tasks.MOST_MARKS + 2) + infer.MARKS_APART
    task, tensors_on, ready_s = infer.made_ready(job, room)
    # Answers to the same requests in the same batches, which LoadGen's are not: by these two runs can be compared.
    outcome = infer.answer_digest(task, *infer.warmed_up(job, task, tensors_on, max(1, job["warm_up"])))
    job["items"] = task.items
    kind, names = infer.kind_of(job)
    if job.get("application") and job["pre_process"] == "untimed":
        task, names = Loaded(task), LOADED
    place = tasks.place(tensors_on, job["device"])
    handle = kind(task, place, tasks.shared_group(names, MOST_STEPS))
    loop = Loop(loadgen, handle, job["batch"], getattr(task, "pre_ns", {}), infer.threads_of(job))
    folder = os.path.join(os.path.dirname(os.path.abspath(job["outcome"])), "loadgen")
    os.makedirs(folder)
    marks.point("ready")
    wait_for_the_others()
    loop.start(job["concurrency"])
    driven(loadgen, job, task, loop, folder)
    outcome["loadgen"] = reported = read(folder)
    outcome["metrics"] = dict(figures(reported, loop.end_to_end_ns, loop.pre_ns), model_load_s=ready_s)
    outcome["threads"] = torch.get_num_threads()
    return outcome


def figures(reported, end_to_end_ns, pre_ns):
    """LoadGen's mean latency of a sample, ours from its file to its answer, and what lies between the two."""
    ours_s = sum(end_to_end_ns) / len(end_to_end_ns) / _NS
    metrics = {"end_to_end_s": ours_s, "samples": len(end_to_end_ns)}
    if pre_ns:
        metrics["pre_process_s"] = sorted(pre_ns.values())[len(pre_ns) // 2] / _NS
    theirs_ns = reported["results"].get("mean_latency_ns")
    if theirs_ns is not None:
        metrics.update(loadgen_mean_s=theirs_ns / _NS, loadgen_gap_s=ours_s - theirs_ns / _NS)
    for name in ("samples_per_second", "completed_samples_per_sec", "qps_with_loadgen_overhead"):
        if name in reported["results"]:
            metrics["loadgen_samples_per_s"] = reported["results"][name]
    return metrics


def main(arguments):
    code = program(run, read_job(arguments[0]), infer.SHOWN)
    sys.stdout.flush()
    sys.stderr.flush()
    # After a problem LoadGen's own thread goes on asking, and cannot be stopped; threads of ours wait for it.
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
