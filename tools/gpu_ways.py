"""Ways in which people train on a GPU, each in a few lines: `tools/on-gpu ways` runs them under tare's attach.

python tools/gpu_ways.py WAY STEPS
"""

import os
import sys

import torch
from torch import nn

WIDTH, BATCH = 2048, 512


def network():
    return nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]).cuda()


def distributed(backend):
    """DDP; without torchrun one process is the whole group."""
    import torch.distributed as dist

    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    for name, value in alone.items():
        os.environ.setdefault(name, value)
    dist.init_process_group(backend)
    return nn.parallel.DistributedDataParallel(network(), device_ids=[0])


def replay_whole_steps(model, x, steps):
    """A CUDA graph of forward, backward and optimiser: no call of torch is left in the loop but the replay."""
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            optimiser.zero_grad(set_to_none=True)
            model(x).square().mean().backward()
            optimiser.step()
    torch.cuda.current_stream().wait_stream(aside)
    optimiser.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x).square().mean().backward()
        optimiser.step()
    for _ in range(steps):
        graph.replay()
    torch.cuda.synchronize()


def loss_of(way, model, x, host, pinned, aside):
    if way == "pageable":
        return model(host.cuda()).square().mean()
    if way == "pinned":
        return model(pinned.cuda(non_blocking=True)).square().mean()
    if way == "amp":
        with torch.autocast("cuda", dtype=torch.float16):
            return model(x).square().mean()
    if way == "checkpointing":
        from torch.utils.checkpoint import checkpoint_sequential

        return checkpoint_sequential(model, 3, x, use_reentrant=False).square().mean()
    if way == "streams":
        half = BATCH // 2
        aside.wait_stream(torch.cuda.current_stream())
        first = model(x[:half])
        with torch.cuda.stream(aside):
            second = model(x[half:])
        torch.cuda.current_stream().wait_stream(aside)
        return first.square().mean() + second.square().mean()
    return model(x).square().mean()


def train(way, steps):
    torch.manual_seed(0)
    x, host = torch.randn(BATCH, WIDTH, device="cuda"), torch.randn(BATCH, WIDTH)
    pinned, aside = host.pin_memory(), torch.cuda.Stream()
    model = distributed(way[4:]) if way.startswith("ddp-") else network()
    if way == "graph-of-steps":
        return replay_whole_steps(model, x, steps)
    if way == "graph-of-network":
        model = torch.cuda.make_graphed_callables(model, (x,))
    elif way == "compile":
        model = torch.compile(model)
    elif way == "compile-graphs":
        model = torch.compile(model, mode="reduce-overhead")
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda", enabled=way == "amp")
    parts = 4 if way == "accumulation" else 1
    for _ in range(steps):
        for _ in range(parts):
            loss = loss_of(way, model, x, host, pinned, aside) / parts
            scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad()
        if way == "item":
            loss.item()
    torch.cuda.synchronize()
    return None


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
