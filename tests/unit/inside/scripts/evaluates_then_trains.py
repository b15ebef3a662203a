"""A model is tested before anyone thinks of an optimiser; then it is trained."""

import torch
from small import data, exact, net
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

loader = DataLoader(data, 8)
net.eval()
with torch.no_grad():
    for _ in range(2):
        print(exact(sum(cross_entropy(net(x), y) for x, y in loader)))
net.train()
optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    optimiser.zero_grad()
    loss = cross_entropy(net(x), y)
    loss.backward()
    optimiser.step()
    print(exact(loss))
