"""The optimisers that update all parameters at once, with a schedule each."""

import torch
from small import Net, data, exact
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

for kind, options in (
    (torch.optim.SGD, {"fused": True}),
    (torch.optim.AdamW, {"foreach": True}),
    (torch.optim.Adam, {"fused": True}),
):
    net = Net()
    optimiser = kind(net.parameters(), lr=0.01, **options)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=4)
    for x, y in DataLoader(data, 8):
        optimiser.zero_grad()
        loss = cross_entropy(net(x), y)
        loss.backward()
        optimiser.step()
        schedule.step()
        print(exact(loss), schedule.get_last_lr())
