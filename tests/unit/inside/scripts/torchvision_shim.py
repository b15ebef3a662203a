"""PyPI's torchvision does not import beside a CPU torch unless these two operators are declared (Lightning and
transformers import it if it is installed)."""

import torch

library = torch.library.Library("torchvision", "DEF")
if torch.version.cuda is None:
    for name in ("nms", "qnms"):
        library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
