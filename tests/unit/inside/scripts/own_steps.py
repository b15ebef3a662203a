"""Training that marks its steps itself."""

import torch
from small import data, exact, net
from torch.nn.functional import cross_entropy

from tare_inside import marks

x, y = data.tensors
marks.point("ready")
optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(5):
    with marks.during("step", step):
        optimiser.zero_grad()
        loss = cross_entropy(net(x), y)
        loss.backward()
        optimiser.step()
    print(exact(loss))
