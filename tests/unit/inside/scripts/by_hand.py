"""Training with no optimiser of torch's: a step is a batch, and the test pass is not inference."""

import torch
from small import data, exact, net
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

for _ in range(2):
    for x, y in DataLoader(data, 8):
        loss = cross_entropy(net(x), y)
        loss.backward()
        with torch.no_grad():
            for weights in net.parameters():
                weights -= 0.1 * weights.grad
                weights.grad = None
        print(exact(loss))
    with torch.no_grad():
        print(exact(sum(cross_entropy(net(x), y) for x, y in DataLoader(data, 8))))
