"""DistributedDataParallel over gloo, two processes."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank, meeting):
    from small import data, exact, net
    from torch.nn.functional import cross_entropy
    from torch.utils.data import DataLoader, DistributedSampler

    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(net)
    if rank == 0:
        dist.barrier()  # the other one makes its optimiser first
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    if rank == 1:
        dist.barrier()
    for x, y in DataLoader(data, 4, sampler=DistributedSampler(data, shuffle=False)):
        optimiser.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimiser.step()
        if rank == 0:
            print(exact(loss), flush=True)
            with open("rank0.pid", "w") as file:
                file.write(str(os.getpid()))
    dist.destroy_process_group()


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    mp.spawn(train, (os.path.join(sys.argv[1], "meeting"),), nprocs=2)
