"""The optimiser is there before anyone imports torch.utils.data."""

import torch

torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
optimiser = torch.optim.SGD(net.parameters(), lr=0.1)

from torch.utils.data import DataLoader  # noqa: E402

for x in DataLoader(torch.randn(16, 4), 4):
    optimiser.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimiser.step()
    print(float(loss.detach()).hex())
