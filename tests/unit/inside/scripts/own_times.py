"""Training loops as people write them, each with a clock of its own: `own_times.py KIND [SECONDS A STEP]`.

Prints one JSON object: `runs`, for each run of steps without an interruption the times at which they ended, by the
script's clock (`begins`: at which they began); and `steps`, how many the script counts.
"""

import json
import sys
import time

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)

WIDTH, BATCH = 256, 32
data = TensorDataset(torch.randn(6 * BATCH, WIDTH), torch.randint(0, 10, (6 * BATCH,)))
runs = [[]]


def model(outputs=10):
    parts = [part for _ in range(3) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*parts, nn.Linear(WIDTH, outputs))


def done():
    """The script's own clock, at the end of a step (or at its beginning)."""
    runs[-1].append(time.monotonic_ns())  # nanoseconds are whole: times are compared by which comes first


def interrupted():
    runs.append([])


def mnist():
    """pytorch/examples mnist: a DataLoader, a test after each epoch."""
    net = model()
    optimizer = torch.optim.Adadelta(net.parameters(), lr=1.0)
    training, testing = DataLoader(data, BATCH, shuffle=True), DataLoader(data, 2 * BATCH)
    for _ in range(2):
        net.train()
        for x, y in training:
            optimizer.zero_grad()
            cross_entropy(net(x), y).backward()
            optimizer.step()
            done()
        net.eval()
        with torch.no_grad():
            for x, _y in testing:
                net(x)
        interrupted()


def word_language_model():
    """pytorch/examples word_language_model: no DataLoader, no optimiser; the gradients are cleared by the model."""
    net, (x, y) = model(), data.tensors

    def evaluate():
        net.eval()
        with torch.no_grad():
            for _ in range(3):
                net(x)

    for _ in range(2):
        net.train()
        for at in range(6):
            inputs, targets = x[at * BATCH :][:BATCH], y[at * BATCH :][:BATCH]
            done()
            net.zero_grad()
            cross_entropy(net(inputs), targets).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.25)
            for p in net.parameters():
                p.data.add_(p.grad, alpha=-0.1)
        evaluate()
        interrupted()


def with_an_optimiser():
    """The same with `--use-optimizer`: nothing but the first forward pass tells where the first step begins."""
    net, (x, y) = model(), data.tensors
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.eval()
    with torch.no_grad():
        for warm in DataLoader(data, 3 * BATCH):
            net(warm[0])
    net.train()
    for at in range(6):  # the first zero_grad() lies before the first forward pass, and so in no step
        inputs, targets = x[at * BATCH :][:BATCH], y[at * BATCH :][:BATCH]
        done()
        optimizer.zero_grad()
        cross_entropy(net(inputs), targets).backward()
        optimizer.step()


def by_hand_without_zero_grad():
    """No DataLoader, no optimiser, and gradients that are cleared one by one."""
    net, (x, y) = model(), data.tensors
    for _ in range(8):
        cross_entropy(net(x[:BATCH]), y[:BATCH]).backward()
        done()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
                p.grad = None


def by_hand_with_a_loader():
    """A DataLoader, and an optimiser that is made but never used."""
    net = model()
    torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        for x, y in DataLoader(data, BATCH):
            cross_entropy(net(x), y).backward()
            with torch.no_grad():
                for p in net.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None
            done()
        interrupted()


def dcgan():
    """pytorch/examples dcgan: two networks, two optimisers, three backward passes, one batch."""
    generator, critic = model(WIDTH), model(1)
    for_critic = torch.optim.Adam(critic.parameters(), lr=0.01)
    for_generator = torch.optim.Adam(generator.parameters(), lr=0.01)
    real, fake = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
    for _ in range(2):
        for x, _y in DataLoader(data, BATCH, shuffle=True):
            critic.zero_grad()
            binary_cross_entropy_with_logits(critic(x), real).backward()
            made = generator(torch.randn(BATCH, WIDTH))
            binary_cross_entropy_with_logits(critic(made.detach()), fake).backward()
            for_critic.step()
            generator.zero_grad()
            binary_cross_entropy_with_logits(critic(made), real).backward()
            for_generator.step()
            done()
        interrupted()


def nanogpt():
    """karpathy/nanoGPT: micro steps, no DataLoader, a scaler that is off, losses estimated now and then."""
    net, (x, y) = model(), data.tensors
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for iteration in range(13):
        if iteration % 5 == 0:
            interrupted()
            net.eval()
            with torch.no_grad():
                for _ in range(4):
                    net(x)
            net.train()
        for _ in range(3):
            loss = cross_entropy(net(x[:BATCH]), y[:BATCH]) / 3
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        done()
        optimizer.zero_grad(set_to_none=True)


def closure():
    """Lightning's way: forward and backward in a closure that the optimiser calls."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in DataLoader(data, BATCH):

        def forward_and_backward(x=x, y=y):
            optimizer.zero_grad()
            loss = cross_entropy(net(x), y)
            loss.backward()
            return loss

        optimizer.step(forward_and_backward)
        done()


def lbfgs():
    """Several closures in one step, and no DataLoader."""
    net, (x, y) = model(), data.tensors
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3, lr=0.1)

    def forward_and_backward():
        optimizer.zero_grad()
        loss = cross_entropy(net(x[:BATCH]), y[:BATCH])
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.step(closure=forward_and_backward)
        done()


def sharpness_aware():
    """A step before the closure and one after it, as SAM does: the gradients of a first backward pass are there."""
    net = model()

    class Aware(torch.optim.SGD):
        def step(self, closure):
            super().step()
            with torch.enable_grad():
                closure()
            super().step()

    optimizer = Aware(net.parameters(), lr=0.1)
    for x, y in DataLoader(data, BATCH):

        def forward_and_backward(x=x, y=y):
            optimizer.zero_grad()
            loss = cross_entropy(net(x), y)
            loss.backward()
            return loss

        forward_and_backward()
        optimizer.step(forward_and_backward)
        done()


def checkpointed():
    """Activation checkpoints of the old kind go backward in the middle of a backward pass."""
    first, second = model(WIDTH), model()
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    for x, y in DataLoader(data, BATCH):
        optimizer.zero_grad()
        kept = checkpoint(first, x.requires_grad_(), use_reentrant=True)
        cross_entropy(second(kept), y).backward()
        optimizer.step()
        done()


def timm():
    """timm's train.py: a loader that is one batch ahead, accumulation, validation in inference mode."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)

    def ahead(loader):
        before = None
        for batch in loader:
            if before is not None:
                yield before
            before = batch
        yield before

    for _ in range(2):
        net.train()
        optimizer.zero_grad()
        for number, (x, y) in enumerate(ahead(DataLoader(data, BATCH))):
            (cross_entropy(net(x), y) / 2).backward()
            if number % 2:
                optimizer.step()
                done()
                optimizer.zero_grad()
        net.eval()
        with torch.inference_mode():
            for x, _y in ahead(DataLoader(data, BATCH)):
                net(x)
        interrupted()


class Endless(DataLoader):
    """As earlier ultralytics had it: its iterator is made with it, before any optimiser, and never ends."""

    class Repeated:
        def __init__(self, sampler):
            self.sampler = sampler

        def __iter__(self):
            while True:
                yield from iter(self.sampler)

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        object.__setattr__(self, "batch_sampler", self.Repeated(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


class LateEndless(Endless):
    """As ultralytics 8.4.190 has it: made with the first pass, and not by torch's `__iter__`."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.iterator = None

    def __iter__(self):
        if self.iterator is None:
            self.iterator = self._get_iterator()
        yield from super().__iter__()


def ultralytics(endless=LateEndless):
    """Ultralytics' trainer: endless loaders, a scaler, accumulation, a mean of the weights that is validated."""
    training, testing = endless(data, BATCH, shuffle=True), endless(data, BATCH)
    time.sleep(0.05)
    net, mean = model(), model().eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    last = -1
    for epoch in range(3):
        net.train()
        for number, (x, y) in enumerate(training, start=epoch * len(training)):
            scaler.scale(cross_entropy(net(x), y)).backward()
            if number - last >= 2:
                scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
                done()
                optimizer.zero_grad()
                last = number
        with torch.inference_mode():
            for x, _y in testing:
                mean(x)
        interrupted()


def ultralytics_early():
    ultralytics(Endless)


def distributed():
    """`torchrun --nproc_per_node 2`: each rank takes its share; the first tells."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    net = nn.parallel.DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    try:
        for _ in range(2):
            sampler = torch.utils.data.DistributedSampler(data)
            for x, y in DataLoader(data, BATCH, sampler=sampler):
                optimizer.zero_grad()
                cross_entropy(net(x), y).backward()
                optimizer.step()
                done()
            interrupted()
    finally:
        rank = dist.get_rank()
        dist.destroy_process_group()
    return rank == 0


def forever():
    """A script of hours, with something to do at its end."""
    import atexit

    atexit.register(lambda: print("exit handler"))
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    try:
        while True:
            for x, y in DataLoader(data, BATCH):
                optimizer.zero_grad()
                cross_entropy(net(x), y).backward()
                optimizer.step()
                time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0)
    finally:
        print("finally")


def stubborn():
    """One that goes on whatever happens, without a DataLoader."""
    import atexit

    atexit.register(lambda: print("exit handler"))
    net, (x, y) = model(), data.tensors
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    while True:
        try:
            cross_entropy(net(x[:BATCH]), y[:BATCH]).backward()
            optimizer.step()
        except BaseException as problem:
            print("caught", type(problem).__name__)


def compiled():
    """A compiled function, in one graph: nothing may lie in its way, so that the first forward pass is not seen."""
    net, (x, y) = model(), data.tensors
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loss_of = torch.compile(lambda x, y: cross_entropy(net(x), y), backend="eager", fullgraph=True)
    for _ in range(5):
        loss_of(x[:BATCH], y[:BATCH]).backward()
        optimizer.step()
        optimizer.zero_grad()
        done()


def in_a_thread():
    """Training in a thread, while the main one has iterated over a DataLoader."""
    import threading

    net = model()
    for _batch in DataLoader(data, BATCH):
        pass

    def train():
        for _ in range(3):
            cross_entropy(net(data.tensors[0]), data.tensors[1]).backward()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()


def by_gradients():
    """Gradients from torch.autograd.grad: there is no backward pass to see."""
    net = model()
    for _ in range(3):
        loss = cross_entropy(net(data.tensors[0]), data.tensors[1])
        for p, g in zip(net.parameters(), torch.autograd.grad(loss, list(net.parameters()))):
            p.data.add_(g, alpha=-0.1)


if __name__ == "__main__":
    if globals()[sys.argv[1]]() is not False:
        print(json.dumps({"steps": sum(map(len, runs)), "runs": [run for run in runs if run]}))
