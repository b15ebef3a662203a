"""ResNet-18 (He et al. 2015)."""

TITLE = "ResNet-18"
KIND = "image"
INPUT = (3, 224, 224)
CLASSES = 1000
PARAMS = 11689512
FLOPS = 1819041768


def build(classes=CLASSES, scale=1.0):
    """The network, with torch's default initialisation; `scale` is the share of its width."""
    from tare_inside.image_layers import Basic, residual_network

    return residual_network(Basic, (2, 2, 2, 2), classes, scale)
