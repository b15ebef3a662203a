"""Autocast and a GradScaler; the third step overflows, so the scaler leaves it out."""

import torch
from small import data, exact, net
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for number, (x, y) in enumerate(DataLoader(data, 8)):
    optimiser.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy(net(x), y)
    scaler.scale(loss * float("inf") if number == 2 else loss).backward()
    scaler.unscale_(optimiser)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimiser)
    scaler.update()
    print(exact(loss), scaler.get_scale())
