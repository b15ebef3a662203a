"""NASNet-A, the mobile one (4 @ 1056; Zoph et al. 2017), which S2 names as future work."""

TITLE = "NASNet-A mobile"
KIND = "image"
INPUT = (3, 224, 224)
CLASSES = 1000
PARAMS = 5289978
FLOPS = 572736990


def build(classes=CLASSES, scale=1.0):
    """The network, with torch's default initialisation; `scale` is the share of its width."""
    from tare_inside.image_layers import NasNet
    from tare_inside.layers import scaled

    return NasNet(scaled(32, scale), scaled(44, scale), 4, classes)
