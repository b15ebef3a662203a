"""A script that forks in the middle of its training; the child trains on as well."""

import os
import sys

import torch
from small import data, exact, net
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
child = None
for number, (x, y) in enumerate(DataLoader(data, 4)):
    if number == 2:
        child = os.fork()
    optimiser.zero_grad()
    loss = cross_entropy(net(x), y)
    loss.backward()
    optimiser.step()
    if child != 0:
        print(exact(loss), flush=True)
if child == 0:
    sys.exit(0)
print(os.WEXITSTATUS(os.waitpid(child, 0)[1]))
