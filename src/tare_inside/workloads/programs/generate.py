"""The built-in text generation: `python -m tare_inside.workloads.programs.generate JOB`.

JOB is JSON or the path of a file.

A request is a batch of prompts of equal length. Marks: `first_token`, from the request to its first token (prefill:
all tokens of the prompt at once), and for each further token of the batch a `step`, with `compute` meaning the same:
one pass through the network with the cache of keys and values, and the choice of the next token. The first token of a
request is marked with the number of the step after it, so that what is warm-up for one is warm-up for the other.

The same seed gives the same weights, prompts and choices, and so the same tokens: their digest is in the outcome.
"""

import gc
import hashlib
import importlib.util
import os
import sys
import warnings

import torch

from tare_inside import BEGAN_NS, marks, named
from tare_inside.launch import wait_for_the_others
from tare_inside.workloads.layers import decoder_from_folder
from tare_inside.workloads.models import Gpt2
from tare_inside.workloads.programs import running, tasks
from tare_inside.workloads.programs.running import program, read_job

SHOWN = ("steps", "answers_digest", "answer")
MARKS_APART = 64
MARKS_A_STEP = 4
STEADY = 0.05  # warm-up ends when a request took as long as the one before, within this
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.float32}
LIVELY = 10.0  # with the article's small random weights every token is the last one again, and a digest says nothing


def obstacle(device, precision, weights=None):
    """Why this device cannot compute so, as a sentence; None if it can."""
    if precision == "int8" and device == "cuda":
        return "`precision: int8` is PyTorch's dynamic quantisation, which is for CPUs: set `device: cpu`, or bf16."
    if precision == "int8" and _engine() is None:
        return "this PyTorch has no quantised engine for this CPU: set `precision: fp32` or `bf16`."
    if precision == "bf16" and device == "cuda" and not torch.cuda.is_bf16_supported():
        return "this GPU does not compute in bf16: set `precision: fp32`."
    if weights is not None and importlib.util.find_spec("transformers") is None:
        return "`weights` are read by transformers: `pip install transformers`, or leave `weights` out."
    return None


def _engine():
    """The engine of quantised layers; PyTorch names the one that fits the CPU first."""
    found = [name for name in torch.backends.quantized.supported_engines if name != "none"]
    wanted = ("fbgemm", "x86") if os.uname().machine in ("x86_64", "amd64") else ("qnnpack",)
    return next((name for name in wanted if name in found), None)


def network_of(job):
    """The decoder as the job names it: random weights from the seed, or those of a folder."""
    torch.manual_seed(job["seed"])
    if job.get("weights"):
        network = decoder_from_folder(job["weights"])
    else:
        network = Gpt2.build(size=job["size"], scale=job["scale"])
        with torch.no_grad():
            for layer in network.layers:
                for linear in (layer.joined, layer.project, layer.widen, layer.narrow):
                    linear.weight.mul_(LIVELY)
    network = network.eval().to(device=job["device"], dtype=TYPES[job["precision"]])
    if job["precision"] == "int8":
        torch.backends.quantized.engine = _engine()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer PyTorch says that this moves to another package
            network = torch.ao.quantization.quantize_dynamic(network, {torch.nn.Linear}, dtype=torch.qint8)
    longest = network.places.weight.shape[0]
    if job["prompt"] + job["output"] > longest:
        raise ValueError(
            "GPT-2 has room for {} tokens and `prompt` + `output` are {}: lower one of them.".format(
                longest, job["prompt"] + job["output"]
            )
        )
    return network


def forward_of(network, job):
    """What runs the network: itself, or compiled; the first calls of warm-up compile it."""
    if job["backend"] == "eager":
        return network
    backend = named.find("backends", job["backend"])
    problem = backend.obstacle(job["device"])
    if problem is not None:
        raise ValueError(problem)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(os.path.dirname(job["marks"]), "inductor")
    return torch.compile(network, dynamic=False)  # two shapes: a whole prompt, and one token


def chooser(job):
    """How the next token (N, 1) is chosen from scores (N, V): the likeliest, or one of the likeliest by chance."""
    if job["decode"] == "greedy":
        return lambda scores: scores.argmax(-1, keepdim=True)
    chance = torch.Generator(device=job["device"])
    chance.manual_seed(job["seed"])
    top, temperature = job["top_k"], job["temperature"]

    def sample(scores):
        best, where = scores.float().topk(min(top, scores.shape[-1]))
        return where.gather(-1, torch.multinomial((best / temperature).softmax(-1), 1, generator=chance))

    return sample


class Generation(object):
    """The network with its cache, and the prompts; `request` generates once."""

    def __init__(self, job):
        self.network = network_of(job)
        self._forward, self.choose = forward_of(self.network, job), chooser(job)
        self._output, device = job["output"], job["device"]
        length = job["prompt"] + job["output"]
        self._cache = self.network.new_cache(job["batch"], length)
        self._places = [torch.tensor([at], device=device) for at in range(length)]
        self._prompt_places = torch.arange(job["prompt"], device=device)
        self._prompt = job["prompt"]
        self._wait = tasks.place(device, device).wait
        vocabulary = self.network.tokens.weight.shape[0]
        words = torch.Generator()
        words.manual_seed(tasks.DATA_SEED)
        count = max(1, min(tasks.DISTINCT, job["requests"]))
        self._prompts = torch.randint(vocabulary, (count, job["batch"], job["prompt"]), generator=words).to(device)

    def cache_bytes(self):
        return sum(tensor.numel() * tensor.element_size() for layer in self._cache for tensor in layer)

    def request(self, number, write_first=None, write=None):
        """All tokens of a request (N, output), a list of columns; marks by the two functions, if they are given."""
        forward, choose, wait, cache, now = self._forward, self.choose, self._wait, self._cache, marks.now_ns
        step = number * (self._output - 1)
        begin_ns = now()
        token = choose(forward(self._prompts[number % len(self._prompts)], self._prompt_places, cache))
        wait()
        before_ns = now()
        if write_first is not None:
            write_first(step, begin_ns, before_ns)
        tokens = [token]
        for at in range(self._prompt, self._prompt + self._output - 1):
            before_ns = now()
            token = choose(forward(token, self._places[at], cache))
            wait()
            after_ns = now()
            if write is not None:
                write(step, before_ns, after_ns, before_ns, after_ns)
            step += 1
            tokens.append(token)
        return tokens, begin_ns, now()


def warmed_up(made, most):
    """Generate without a mark until a request takes as long as the one before it, at most so often; how often."""
    begin_ns, before_s = marks.now_ns(), None
    for number in range(most):
        _, start_ns, end_ns = made.request(number)
        took_s = (end_ns - start_ns) / 1e9
        if before_s is not None and abs(took_s - before_s) <= STEADY * before_s:
            break
        before_s = took_s
    marks.interval("settling", -1, begin_ns, marks.now_ns())
    return number + 1 if most else 0


def generated(job, made):
    """Answer all requests; what came of it."""
    steps = job["requests"] * (job["output"] - 1)
    write_first = marks.group(("first_token",), job["requests"])
    write = marks.group(("compute", "step"), steps)
    made.choose = chooser(job)  # its chance starts anew, however long the warm-up was
    gc.collect()
    marks.point("ready")
    wait_for_the_others()
    if job["device"] == "cuda":
        torch.cuda.reset_peak_memory_stats()
    before, busy_s, columns = running.used(), 0.0, []
    for number in range(job["requests"]):
        tokens, begin_ns, end_ns = made.request(number, write_first, write)
        busy_s += (end_ns - begin_ns) / 1e9
        columns.append(tokens)
    after = running.used()
    tokens = [torch.cat(each, 1).tolist() for each in columns]
    count = job["requests"] * job["batch"] * job["output"]
    peak = torch.cuda.max_memory_allocated() if job["device"] == "cuda" else running.peak_bytes()
    return {
        "answers_digest": hashlib.sha256(repr(tokens).encode("ascii")).hexdigest(),
        "answer": repr(tokens[0][0])[:200],
        "metrics": {
            "tokens_per_s": count / busy_s,
            "time_token_s": busy_s / count,
            "requests_per_s": job["requests"] / busy_s,
            "cpu_step_s": (after["cpu_train_s"] - before["cpu_train_s"]) / steps,
            "minor_faults_inference": after["minor_faults_training"] - before["minor_faults_training"],
            "major_faults_inference": after["major_faults_training"] - before["major_faults_training"],
            "kv_cache_bytes": made.cache_bytes(),
            "peak_bytes": peak,
        },
    }


def run(job):
    """Generate as the job says; what came of it, as plain data."""
    problem = obstacle(job["device"], job["precision"], job.get("weights"))
    if problem is not None:
        raise ValueError(problem)
    if job.get("threads") is not None:
        torch.set_num_threads(job["threads"])
    imported_ns = marks.now_ns()
    steps = job["requests"] * (job["output"] - 1)
    marks.open_marks(job["marks"], MARKS_A_STEP * (steps + job["requests"]) + MARKS_APART)
    marks.interval("imports", -1, BEGAN_NS, imported_ns)
    running.mark_device(torch, job["device"])
    begin_ns = marks.now_ns()
    with getattr(torch, "inference_mode", torch.no_grad)():
        made = Generation(job)
        end_ns = marks.now_ns()
        marks.interval("model_load", -1, begin_ns, end_ns)
        warm_up = warmed_up(made, job["warm_up"])
        outcome = generated(job, made)
    outcome["metrics"]["model_load_s"] = (end_ns - begin_ns) / 1e9
    outcome.update(steps=steps, warm_up=warm_up, threads=torch.get_num_threads())
    return outcome


def main(arguments):
    return program(run, read_job(arguments[0]), SHOWN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
