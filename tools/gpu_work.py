"""What `tools/on-gpu` trains on a GPU: small loops whose truth is known, and real networks at their real size.

    python tools/gpu_work.py NETWORK STEPS FOLDER [profile] [zeus] [compile]

trains so many steps, reads NVML's energy counter at both ends of the last four fifths, and leaves what it saw as a file
in FOLDER. `profile`: the busy share by torch's own profiler, in further steps. `zeus`: Zeus's monitor around the same
steps. `compile`: by torch.compile.

    python tools/gpu_work.py NETWORK cost ROUNDS

under tare's attach: what the marks and events, a process that reads NVML without a pause, and a window that is over
cost, in short blocks that take turns in one process. Two processes of the same launch-bound script differ by 10 % and
more on a shared host; neighbouring blocks do not.
"""

import gc
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn

BLOCK_S = 0.06
EARLY = 150  # steps, in which the window lies
READER = """
import pynvml
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
while True:
    pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
"""


def built(name):
    """(the network, a function that gives the loss of a mini-batch)"""
    on = {"device": "cuda"}
    entropy = nn.functional.cross_entropy
    if name == "burn":
        model = nn.Sequential(*[nn.Linear(4096, 4096, bias=False) for _ in range(6)]).cuda().bfloat16()
        x = torch.randn(4096, 4096, **on).bfloat16()
        return model, lambda: model(x).float().mean()
    if name == "lenet":
        model = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
            nn.Linear(84, 10),
        ).cuda()  # fmt: skip
        x, y = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
        return model, lambda: entropy(model(x.cuda()), y.cuda())
    if name in ("resnet50", "resnet152"):
        import torchvision

        model = getattr(torchvision.models, name)().cuda()
        x, y = torch.randn(64, 3, 224, 224, **on), torch.randint(0, 1000, (64,), **on)
        return model, lambda: entropy(model(x), y)
    if name in ("nanogpt", "gpt2-124m"):
        from model import GPT, GPTConfig  # nanoGPT's, on the path

        small = {"block_size": 256, "vocab_size": 65, "n_layer": 6, "n_head": 6, "n_embd": 384, "dropout": 0.2}
        options = GPTConfig(bias=False, **small) if name == "nanogpt" else GPTConfig()
        size = (64 if name == "nanogpt" else 12, options.block_size)
        model = GPT(options).cuda()
        x, y = (torch.randint(0, options.vocab_size, size, **on) for _ in range(2))
        return model, lambda: _in_bf16(lambda: model(x, y)[1])
    from tare_inside import named

    model = named.find("models", name.replace("-", "_")).build().cuda()
    if name == "bert-large":
        tokens, kinds = torch.randint(0, 30522, (24, 384), **on), torch.zeros(24, 384, dtype=torch.long, **on)
        where = torch.randint(0, 384, (24,), **on)
        return model, lambda: _in_bf16(lambda: _of_answers(model, tokens, kinds, where))
    if name == "rnnt":
        speech, letters = torch.randn(32, 500, 240, **on), torch.randint(0, 28, (32, 100), **on)
        return model, lambda: _in_bf16(lambda: _of_alignments(model(speech, letters), letters))
    from tare_inside.workloads.models import Dlrm

    numbers, clicked = torch.rand(2048, 13, **on), torch.randint(0, 2, (2048,), **on).float()
    rows = torch.stack([torch.randint(0, count, (2048,), **on) for count in Dlrm.table_rows()], 1)
    return model, lambda: nn.functional.binary_cross_entropy(model(numbers, rows), clicked)


def _in_bf16(work):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return work()


def _of_answers(model, tokens, kinds, where):
    found = model(tokens, kinds)
    start, end = found if isinstance(found, tuple) else (found[..., 0], found[..., 1])
    return nn.functional.cross_entropy(start, where) + nn.functional.cross_entropy(end, where)


def _of_alignments(scores, letters):
    """Not the transducer's loss, which torch has no kernel for: cross-entropy over its whole lattice of scores."""
    wanted = nn.functional.pad(letters, (0, 1), value=28)[:, None, :].expand(scores.shape[:3])
    return nn.functional.cross_entropy(scores.flatten(0, 2).float(), wanted.flatten())


class Training:
    def __init__(self, name, words):
        torch.manual_seed(0)
        model, self.loss_of = built(name)
        if "compile" in words:
            model.compile()
        momentum = 0.0 if name in ("burn", "dlrm") else 0.9  # none for sparse gradients
        self.optimiser = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=momentum)

    def train(self, count):
        for _ in range(count):
            self.optimiser.zero_grad()
            self.loss_of().backward()
            self.optimiser.step()
        torch.cuda.synchronize()


def joules():
    import pynvml

    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(0)) / 1e3


def whole(name, steps, folder, words):
    """One run, and what the script itself sees of it."""
    monitor = None
    if "zeus" in words:  # it takes seconds to import: not among the steps
        from zeus.monitor import ZeusMonitor

        monitor = ZeusMonitor(gpu_indices=[0])
    training = Training(name, words)
    early = steps // 5
    training.train(early)
    if monitor is not None:
        monitor.begin_window("steps")
    before, begin = joules(), time.monotonic()
    training.train(steps - early)
    end, after = time.monotonic(), joules()
    count = steps - early
    found = {"step_s": (end - begin) / count, "energy_step_j": (after - before) / count}
    if monitor is not None:
        found["zeus_step_j"] = monitor.end_window("steps").total_energy / count
    if "profile" in words:
        found["busy_share"] = by_the_profiler(training)
    found["memory_bytes"] = torch.cuda.max_memory_allocated()
    (Path(folder) / f"own-{time.time_ns()}-{os.getpid()}.json").write_text(json.dumps(found))
    sys.stdout.write(json.dumps(found) + "\n")


def by_the_profiler(training):
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        training.train(50)
        begin = time.monotonic()
        training.train(200)
        lasted = time.monotonic() - begin
    return sum(each.self_device_time_total for each in profiler.key_averages()) / 1e6 * 200 / 250 / lasted


def launch_us():
    """What a launch costs the host: the least of a few, since whatever comes between only adds to it."""
    x, least = torch.zeros(16, device="cuda"), []
    for _ in range(30):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(300):
            x.add_(1)
        least.append((time.perf_counter() - begin) / 300 * 1e6)
    return statistics.median(sorted(least)[:10])


def hooks_us(steps):
    """What the marks and events of a step cost by themselves: the same calls, with no work between them."""
    now, found = time.monotonic_ns, []
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(200):
            begin_ns = now()
            if steps.gpu is not None:
                steps.gpu.stamp(begin_ns)
            steps.went_backward(begin_ns, now())
            steps.optimised(1, now(), now())
        found.append((time.perf_counter() - begin) / 200 * 1e6)
    return statistics.median(found)


def cost(name, rounds):
    """Blocks of one process, in turn; ratios to the plain block of the same round."""
    free_us = launch_us()
    training = Training(name, ())
    training.train(EARLY)
    after_us = launch_us()
    (watch,) = [each for each in gc.get_objects() if type(each).__name__ == "Watch"]
    steps = watch.steps
    begin = time.monotonic()
    training.train(20)
    size = max(2, int(BLOCK_S * 20 / (time.monotonic() - begin)))
    apart = {name: value for name, value in os.environ.items() if not name.startswith("TARE_")}
    reader = subprocess.Popen([sys.executable, "-c", READER], env=apart)
    time.sleep(2)
    os.kill(reader.pid, signal.SIGSTOP)
    modes, found = ["plain", "same", "marked", "read"], {}
    chance = random.Random(1)
    for _ in range(rounds):
        chance.shuffle(modes)
        for mode in modes:
            watch.steps = steps if mode == "marked" else None
            os.kill(reader.pid, signal.SIGCONT if mode == "read" else signal.SIGSTOP)
            training.train(2)
            begin = time.monotonic()
            training.train(size)
            found.setdefault(mode, []).append((time.monotonic() - begin) / size)
    reader.kill()
    reader.wait()
    watch.steps = steps
    told = {"step_s": statistics.median(found["plain"]), "block": size, "launch_us": [free_us, after_us]}
    told["hooks_us"] = hooks_us(steps)
    free = [(a + b) / 2 for a, b in zip(found["plain"], found["same"], strict=True)]
    for mode, against in (("same", found["plain"]), ("marked", free), ("read", free)):
        told[mode] = median_and_interval([a / b - 1 for a, b in zip(found[mode], against, strict=True)], chance)
    sys.stdout.write(json.dumps(told) + "\n")


def median_and_interval(ratios, chance):
    again = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(1000))
    return [statistics.median(ratios), again[24], again[974]]


if __name__ == "__main__":
    if sys.argv[2] == "cost":
        cost(sys.argv[1], int(sys.argv[3]))
    else:
        whole(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:])
