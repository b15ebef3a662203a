"""Training with no DataLoader at all."""

import torch
from small import data, exact, net
from torch.nn.functional import cross_entropy

x, y = data.tensors
optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    optimiser.zero_grad()
    loss = cross_entropy(net(x), y)
    loss.backward()
    optimiser.step()
    print(exact(loss))
