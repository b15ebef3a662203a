"""The two-line API beside a training loop, in a script that marks before it imports torch."""

from tare_inside import marks

with marks.during("load"):
    import torch
    from small import data, exact, net
    from torch.nn.functional import cross_entropy
    from torch.utils.data import DataLoader

optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
for step, (x, y) in enumerate(DataLoader(data, 8)):
    marks.begin("augment", step)
    x = x * 2
    marks.end("augment", step)
    optimiser.zero_grad()
    loss = cross_entropy(net(x), y)
    loss.backward()
    optimiser.step()
    print(exact(loss))
marks.point("trained")
