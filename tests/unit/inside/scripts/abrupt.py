"""Training that ends without a goodbye: with os._exit, an exception that nobody catches, or a signal."""

import os
import signal
import sys

import torch
from small import data, exact, net
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
for number, (x, y) in enumerate(DataLoader(data, 4)):
    if number == 5:
        sys.stdout.flush()
        if sys.argv[1] == "exit":
            os._exit(7)
        if sys.argv[1] == "signal":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("mine")
    optimiser.zero_grad()
    loss = cross_entropy(net(x), y)
    loss.backward()
    optimiser.step()
    print(exact(loss))
