"""A compiled model that is only used, never trained."""

import torch
from small import data, exact, net
from torch.utils.data import DataLoader

quick = torch.compile(net.eval(), backend="aot_eager")
whole = torch.compile(torch.nn.Sequential(net, torch.nn.ReLU()).eval(), backend="aot_eager")
with torch.inference_mode():
    for x, _ in DataLoader(data, 8):
        print(exact(quick(x).sum()), exact(whole(x).sum()))

from torch._dynamo.utils import counters  # noqa: E402  (not before: a script does not do that either)

print(counters["stats"]["unique_graphs"], dict(counters["graph_break"]))
