"""A plain training script on a GPU; prints its losses."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
data = TensorDataset(torch.randn(3200, 1024), torch.randint(0, 10, (3200,)))
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10)).cuda()
optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for _ in range(12):
    for x, y in DataLoader(data, 64):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
print("\n".join(float(loss).hex() for loss in losses))
