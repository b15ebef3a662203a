"""ResNet-152 (He et al. 2015), version 1.5, as in torchvision: the largest network of S4's Figure 5."""

TITLE = "ResNet-152"
KIND = "image"
INPUT = (3, 224, 224)
CLASSES = 1000
PARAMS = 60192808
FLOPS = 11558735848


def build(classes=CLASSES, scale=1.0):
    """The network, with torch's default initialisation; `scale` is the share of its width."""
    from tare_inside.image_layers import Bottleneck, residual_network

    return residual_network(Bottleneck, (3, 8, 36, 3), classes, scale)
