"""Four batches for one optimiser step."""

import torch
from small import data, exact, net
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for number, (x, y) in enumerate(DataLoader(data, 4), 1):
    loss = cross_entropy(net(x), y) / 4
    loss.backward()
    print(exact(loss))
    if number % 4 == 0:
        optimiser.step()
        optimiser.zero_grad()
