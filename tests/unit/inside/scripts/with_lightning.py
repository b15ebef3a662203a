"""PyTorch Lightning: two batches a step, a sanity check before the first epoch, validation after each."""

import logging
import warnings

import torchvision_shim  # noqa: F401  (before Lightning, which imports torchvision)

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

import lightning  # noqa: E402
import torch  # noqa: E402
from small import Net, data, exact  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402


class Lit(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, number):
        loss = cross_entropy(self.net(batch[0]), batch[1])
        print(exact(loss))
        return loss

    def validation_step(self, batch, number):
        print("test", exact(cross_entropy(self.net(batch[0]), batch[1])))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", accumulate_grad_batches=2, **quiet)
trainer.fit(Lit(), DataLoader(data, 4), DataLoader(data, 16))
