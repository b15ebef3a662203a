"""MobileNetV3-large (Howard et al. 2019)."""

TITLE = "MobileNetV3-large"
KIND = "image"
INPUT = (3, 224, 224)
CLASSES = 1000
PARAMS = 5483032
FLOPS = 225396736

_BLOCKS = (  # kernel, widened, outputs, squeeze-and-excitation, hard swish (else ReLU), stride
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)


def build(classes=CLASSES, scale=1.0):
    """The network, with torch's default initialisation; `scale` is the share of its width."""
    from torch import nn

    from tare_inside.image_layers import InvertedResidual, convolution
    from tare_inside.layers import scaled

    channels = scaled(16, scale)
    layers = [convolution(3, channels, 3, stride=2, activation=nn.Hardswish)]
    for kernel, widened, outputs, squeeze, hard_swish, stride in _BLOCKS:
        activation = nn.Hardswish if hard_swish else nn.ReLU
        inputs, channels = channels, scaled(outputs, scale)
        layers.append(InvertedResidual(inputs, scaled(widened, scale), channels, kernel, stride, squeeze, activation))
    last, hidden = scaled(960, scale), scaled(1280, scale)
    return nn.Sequential(
        *layers,
        convolution(channels, last, 1, activation=nn.Hardswish),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(last, hidden),
        nn.Hardswish(inplace=True),
        nn.Dropout(0.2, inplace=True),
        nn.Linear(hidden, classes),
    )
