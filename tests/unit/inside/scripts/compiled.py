"""A compiled model, trained; how many graphs there were is printed, for a watched one must not have more."""

import torch
from small import data, exact, net
from torch._dynamo.utils import counters
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
quick = torch.compile(net, backend="aot_eager")
for x, y in DataLoader(data, 8):
    optimiser.zero_grad()
    loss = cross_entropy(quick(x), y)
    loss.backward()
    optimiser.step()
    print(exact(loss))
print(counters["stats"]["unique_graphs"], dict(counters["graph_break"]))
