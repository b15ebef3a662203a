"""ResNet-50 (He et al. 2015), version 1.5, as in torchvision and MLPerf."""

TITLE = "ResNet-50"
KIND = "image"
INPUT = (3, 224, 224)
CLASSES = 1000
PARAMS = 25557032
FLOPS = 4111413224


def build(classes=CLASSES, scale=1.0):
    """The network, with torch's default initialisation; `scale` is the share of its width."""
    from tare_inside.image_layers import Bottleneck, residual_network

    return residual_network(Bottleneck, (3, 4, 6, 3), classes, scale)
