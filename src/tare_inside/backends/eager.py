"""PyTorch as it comes: each operation when its line is reached."""

TITLE = "PyTorch eager"


def obstacle(device):
    """Nothing can be in the way where torch is."""
    return None


def opened(network, example, options):
    """The network itself, on its device."""
    return network.to(options["device"]), options["device"]
