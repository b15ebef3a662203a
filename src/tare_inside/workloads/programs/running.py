"""How a built-in program is run: its job is read, what came of it is written, a known problem is said in a sentence."""

import atexit
import gc
import json
import resource
import sys

from tare_inside import fingerprint, marks
from tare_inside.launch import write_whole

_IN_A_WORKER = "in DataLoader worker process"

# What an exception says -> what to tell the user. `{}` is filled from the job.
_MEMORY = (
    "there is not enough memory for mini-batches of {batch}: lower `batch`{or_size}, or `workers` and `prefetch` "
    "({workers} x {prefetch} mini-batches wait in memory), or give the platform more."
)
_MEMORY_ALONE = "there is not enough memory for a batch of {batch}: lower `batch`{or_size}, or give the platform more."
_GPU_MEMORY = "the GPU's memory does not hold a mini-batch of {batch}: lower `batch`{or_size}."
_SHARED_MEMORY = (
    "a loader worker found no room in /dev/shm, through which mini-batches of {batch} are passed: give the platform a "
    "larger `shm`, or lower `batch`, `workers` or `prefetch`."
)
_KILLED = (
    "a loader worker was killed, most likely by the kernel for want of memory: lower `workers` ({workers}), `prefetch` "
    "({prefetch}) or `batch` ({batch}), or give the platform more memory."
)
_TOO_SMALL = "{model} cannot run on items of this size ({reported}): set `pixels` or `length` higher, or leave it out."
_NO_GPU = "the GPU cannot be used: {reported}"

_SAID = (
    ("CUDA out of memory", _GPU_MEMORY),
    ("CUDNN_STATUS_ALLOC_FAILED", _GPU_MEMORY),
    ("Bus error", _SHARED_MEMORY),
    ("No space left on device", _SHARED_MEMORY),
    ("shared memory", _SHARED_MEMORY),
    ("killed by signal: Killed", _KILLED),
    ("not enough memory", _MEMORY),
    ("can't allocate memory", _MEMORY),
    ("Cannot allocate memory", _MEMORY),
    ("bad_alloc", _MEMORY),
    ("Kernel size can't be greater than actual input size", _TOO_SMALL),
    ("Output size is too small", _TOO_SMALL),
    ("Expected more than 1 value per channel", _TOO_SMALL),
    ("mat1 and mat2 shapes cannot be multiplied", _TOO_SMALL),
    ("Found no NVIDIA driver", _NO_GPU),
    ("No CUDA GPUs are available", _NO_GPU),
    ("Torch not compiled with CUDA enabled", _NO_GPU),
)


def explained(problem, job):
    """The sentence, or None where the exception is none of those that a user can do something about."""
    text = _without_traceback(str(problem))
    if isinstance(problem, MemoryError):
        return _filled(_MEMORY, job, text)
    if isinstance(problem, (RuntimeError, OSError)):
        whole = str(problem)
        for words, sentence in _SAID:
            if words in whole:
                return _filled(sentence, job, text.splitlines()[0].rstrip(". ") if text else words)
    if isinstance(problem, (ValueError, OSError, ImportError)) or _IN_A_WORKER in str(problem):
        return text or None
    return None


def _without_traceback(text):
    """What was said in a loader worker, without the traceback that torch puts before it."""
    if _IN_A_WORKER not in text:
        return text.strip()
    lines = text.rstrip().splitlines()
    # The exception's own words begin after the last indented line, the source of the innermost frame.
    last = max((at for at, line in enumerate(lines) if line.startswith("  ")), default=0)
    reported = "\n".join(lines[last + 1 :])
    name, colon, words = reported.partition(": ")
    return words.strip() if colon and name.replace(".", "").isidentifier() else reported.strip()


def _filled(sentence, job, reported):
    if sentence is _MEMORY and job.get("workers") is None:
        sentence = _MEMORY_ALONE  # inference has no loader
    size = next((name for name in ("pixels", "length") if job.get(name)), None)
    return sentence.format(
        batch=job.get("batch"),
        workers=job.get("workers"),
        prefetch=job.get("prefetch"),
        model=job.get("model"),
        or_size=" or `{}`".format(size) if size else "",
        reported=reported,
    )


def read_job(text):
    """The job, from JSON or from the file that holds it."""
    if text.lstrip().startswith("{"):
        return json.loads(text)
    with open(text) as file:
        return json.load(file)


def program(work, job, shown):
    """Do the work, write what came of it, and print the part that is `shown`; returns the exit code."""
    try:
        outcome = work(job)
    except Exception as problem:
        sentence = explained(problem, job)
        if sentence is None:
            raise
        sys.stderr.write("tare: {}\n".format(sentence))
        return 1
    write_whole(job["outcome"], outcome)
    write_whole(job["fingerprint"], fingerprint.gather())
    print(json.dumps({name: outcome[name] for name in shown if name in outcome}))
    marks.point("exit")
    # A last search for garbage, through all that torch has loaded, takes 0.7 s. Python 3.6 cannot be kept from it.
    atexit.register(getattr(gc, "freeze", gc.enable))
    return 0


def mark_device(torch, device):
    """Make the GPU's context, which the first tensor would make otherwise, and mark what that takes."""
    if device == "cpu":
        return
    begin_ns = marks.now_ns()
    torch.zeros(1, device=device)
    torch.cuda.synchronize()
    marks.interval("device", -1, begin_ns, marks.now_ns())


def used():
    """What this process has used so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    moves = migrations()
    return {
        "cpu_train_s": own.ru_utime + own.ru_stime,
        "minor_faults_training": own.ru_minflt,
        "major_faults_training": own.ru_majflt,
        "voluntary_switches_training": own.ru_nvcsw,
        "involuntary_switches_training": own.ru_nivcsw,
        **({} if moves is None else {"migrations_training": moves}),
    }


def peak_bytes():
    """The most memory that this process has had at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def migrations():
    """How often the main thread was moved to another core; None where the kernel does not say (CONFIG_SCHED_DEBUG)."""
    try:
        with open("/proc/self/sched") as file:
            for line in file:
                if line.startswith("se.nr_migrations"):
                    return int(line.rpartition(":")[2])
    except (OSError, ValueError):
        pass
    return None


def workers_cpu_s():
    """CPU time of the loader workers that have ended."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])  # user, system
