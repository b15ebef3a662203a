"""How wide a layer is, in a network that is made smaller by a scale."""


def divisible(count, by=8):
    """The multiple of `by` nearest to `count`, never below nine tenths of it: the rule of the MobileNets."""
    near = max(by, int(count + by / 2) // by * by)
    return near if near >= 0.9 * count else near + by


def scaled(count, scale, by=8):
    """`count` at scale 1, exactly; else about that share of it, as a multiple of `by`."""
    return count if checked(scale) == 1 else divisible(count * scale, by)


def repeated(count, scale):
    """How often a block is repeated: `count` times at scale 1, at least once at any other."""
    return count if checked(scale) == 1 else max(1, int(count * scale + 0.5))


def checked(scale):
    """The scale, if a network can have it."""
    if not 0 < scale < float("inf"):
        raise ValueError("a network's scale is a number above 0, not {}.".format(scale))
    return scale
