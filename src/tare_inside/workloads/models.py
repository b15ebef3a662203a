"""The built-in networks, a class each. It has TITLE, for people, and build(), which returns the module.

KIND says which data fit ("image", "tokens", "speech", "questions", "clicks"), INPUT is the shape of one item, CLASSES
the class count for which PARAMS (parameters) and FLOPS are true. FLOPS counts one item through the network, forward:
each multiplication with its addition once, each bias once, each normalised value twice. The papers' tables count so.

build() initialises as torch does, or the article where it says so; `scale` is the share of the width unless said. The
blocks of which it builds, and torch with them, are imported then: what else is known of a network needs no torch.
"""

NAMES = (
    "alexnet", "bert_large", "dlrm", "googlenet", "gpt2", "lenet5", "lstm", "mobilebert", "mobilenet_v3_large",
    "nasnet", "resnet18", "resnet50", "resnet152", "rnnt", "squeezenet", "vgg11",
)  # fmt: skip
"""In a study; each is the class of that name (see named.py)."""


class _Images(object):
    KIND = "image"
    INPUT = (3, 224, 224)
    CLASSES = 1000


class LeNet5(_Images):
    """LeNet-5 (LeCun et al. 1998) in its classical shape: 61,706 parameters, 28 x 28 images padded to 32 x 32."""

    TITLE = "LeNet-5"
    INPUT = (1, 28, 28)
    CLASSES = 10
    PARAMS = 61706
    FLOPS = 423038
    PAPER_FLOPS = 4400000  # of another LeNet-5, with 431,080 parameters: see docs/reference/parts.md

    @staticmethod
    def build(classes=CLASSES, scale=1.0):
        from torch import nn

        from tare_inside.workloads.layers import scaled

        c1, c2, h1, h2 = (scaled(width, scale, by=2) for width in (6, 16, 120, 84))
        return nn.Sequential(
            nn.Conv2d(1, c1, 5, padding=2),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(c1, c2, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(c2 * 5 * 5, h1),
            nn.Tanh(),
            nn.Linear(h1, h2),
            nn.Tanh(),
            nn.Linear(h2, classes),
        )


class AlexNet(_Images):
    """AlexNet in its one-column version (Krizhevsky 2014), as in torchvision. Images: from 63 pixels."""

    TITLE = "AlexNet"
    PARAMS = 61100840
    FLOPS = 714682664

    @staticmethod
    def build(classes=1000, scale=1.0):
        from torch import nn

        from tare_inside.workloads.layers import scaled

        c1, c2, c3, c4, hidden = (scaled(width, scale) for width in (64, 192, 384, 256, 4096))
        return nn.Sequential(
            nn.Conv2d(3, c1, 11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(c1, c2, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(c2, c3, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(c3, c4, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(c4, c4, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.AdaptiveAvgPool2d(6),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(c4 * 6 * 6, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, classes),
        )


class Vgg11(_Images):
    """VGG-11 (Simonyan and Zisserman 2014, configuration A), without batch norm."""

    TITLE = "VGG-11"
    PARAMS = 132863336
    FLOPS = 7616525288

    @staticmethod
    def build(classes=1000, scale=1.0):
        from torch import nn

        from tare_inside.workloads.layers import scaled

        channels, layers = 3, []
        for stage in ((64,), (128,), (256, 256), (512, 512), (512, 512)):  # widths of the convolutions before each pool
            for width in stage:
                inputs, channels = channels, scaled(width, scale)
                layers += [nn.Conv2d(inputs, channels, 3, padding=1), nn.ReLU(inplace=True)]
            layers.append(nn.MaxPool2d(2))
        hidden = scaled(4096, scale)
        return nn.Sequential(
            *layers,
            nn.AdaptiveAvgPool2d(7),
            nn.Flatten(),
            nn.Linear(channels * 7 * 7, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(hidden, classes),
        )


class GoogLeNet(_Images):
    """GoogLeNet (Szegedy et al. 2014), which S2 names as future work: the article's, without its side classifiers."""

    TITLE = "GoogLeNet"
    PARAMS = 6998552
    FLOPS = 1585899032

    # 1x1; 1x1 and 3x3; 1x1 and 5x5; 1x1 after pooling. None: pooled to half the size.
    _MODULES = (
        (64, (96, 128), (16, 32), 32), (128, (128, 192), (32, 96), 64), None,
        (192, (96, 208), (16, 48), 64), (160, (112, 224), (24, 64), 64), (128, (128, 256), (24, 64), 64),
        (112, (144, 288), (32, 64), 64), (256, (160, 320), (32, 128), 128), None,
        (256, (160, 320), (32, 128), 128), (384, (192, 384), (48, 128), 128),
    )  # fmt: skip

    @classmethod
    def build(cls, classes=1000, scale=1.0):
        from torch import nn

        from tare_inside.workloads.image_layers import Inception
        from tare_inside.workloads.layers import scaled

        first, second = scaled(64, scale), scaled(192, scale)
        layers = [
            nn.Conv2d(3, first, 7, stride=2, padding=3),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            nn.LocalResponseNorm(5),
            nn.Conv2d(first, first, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(first, second, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.LocalResponseNorm(5),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
        ]
        channels = second
        for module in cls._MODULES:
            if module is None:
                layers.append(nn.MaxPool2d(3, stride=2, ceil_mode=True))
                continue
            one, three, five, pooled = module
            one, pooled = scaled(one, scale), scaled(pooled, scale)
            three, five = ([scaled(width, scale) for width in pair] for pair in (three, five))
            layers.append(Inception(channels, one, three, five, pooled))
            channels = one + three[1] + five[1] + pooled
        ending = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.4), nn.Linear(channels, classes))
        return nn.Sequential(*layers, *ending)


class SqueezeNet(_Images):
    """SqueezeNet 1.0 (Iandola et al. 2016), which the papers cite; 1.1 is a later one. Images: from 21 pixels."""

    TITLE = "SqueezeNet 1.0"
    PARAMS = 1248424
    FLOPS = 823270824

    _STAGES = (((16, 64), (16, 64), (32, 128)), ((32, 128), (48, 192), (48, 192), (64, 256)), ((64, 256),))

    @classmethod
    def build(cls, classes=1000, scale=1.0):
        from torch import nn

        from tare_inside.workloads.image_layers import Fire
        from tare_inside.workloads.layers import scaled

        channels = scaled(96, scale)
        layers = [nn.Conv2d(3, channels, 7, stride=2), nn.ReLU(inplace=True)]
        for stage in cls._STAGES:
            layers.append(nn.MaxPool2d(3, stride=2, ceil_mode=True))
            for squeezed, expanded in stage:
                expanded = scaled(expanded, scale)
                layers.append(Fire(channels, scaled(squeezed, scale), expanded))
                channels = 2 * expanded
        return nn.Sequential(
            *layers,
            nn.Dropout(0.5),
            nn.Conv2d(channels, classes, 1),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )


class ResNet18(_Images):
    """ResNet-18 (He et al. 2015)."""

    TITLE = "ResNet-18"
    PARAMS = 11689512
    FLOPS = 1819041768

    _BLOCK, _STAGES = "Basic", (2, 2, 2, 2)

    @classmethod
    def build(cls, classes=1000, scale=1.0):
        from tare_inside.workloads import image_layers

        return image_layers.residual_network(getattr(image_layers, cls._BLOCK), cls._STAGES, classes, scale)


class ResNet50(ResNet18):
    """ResNet-50 (He et al. 2015), version 1.5, as in torchvision and MLPerf."""

    TITLE = "ResNet-50"
    PARAMS = 25557032
    FLOPS = 4111413224

    _BLOCK, _STAGES = "Bottleneck", (3, 4, 6, 3)


class ResNet152(ResNet50):
    """ResNet-152 (He et al. 2015), version 1.5, as in torchvision: the largest network of S4's Figure 5."""

    TITLE = "ResNet-152"
    PARAMS = 60192808
    FLOPS = 11558735848

    _STAGES = (3, 8, 36, 3)


class MobileNetV3Large(_Images):
    """MobileNetV3-large (Howard et al. 2019)."""

    TITLE = "MobileNetV3-large"
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

    @classmethod
    def build(cls, classes=1000, scale=1.0):
        from torch import nn

        from tare_inside.workloads.image_layers import InvertedResidual, convolution
        from tare_inside.workloads.layers import scaled

        channels = scaled(16, scale)
        layers = [convolution(3, channels, 3, stride=2, activation=nn.Hardswish)]
        for kernel, widened, outputs, squeeze, hard_swish, stride in cls._BLOCKS:
            activation = nn.Hardswish if hard_swish else nn.ReLU
            inputs, channels = channels, scaled(outputs, scale)
            widened = scaled(widened, scale)
            layers.append(InvertedResidual(inputs, widened, channels, kernel, stride, squeeze, activation))
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


class NasNet(_Images):
    """NASNet-A, the mobile one (4 @ 1056; Zoph et al. 2017), which S2 names as future work."""

    TITLE = "NASNet-A mobile"
    PARAMS = 5289978
    FLOPS = 572736990

    @staticmethod
    def build(classes=1000, scale=1.0):
        from tare_inside.workloads.image_layers import NasNet
        from tare_inside.workloads.layers import scaled

        return NasNet(scaled(32, scale), scaled(44, scale), 4, classes)


class Lstm(object):
    """A word-level LSTM language model: the two layers of 650 units of Zaremba et al. (2014), BERT's vocabulary."""

    TITLE = "LSTM"
    KIND = "tokens"
    INPUT = (128,)
    CLASSES = 30522  # the vocabulary
    PARAMS = 46479522
    FLOPS = 3409948416

    @staticmethod
    def build(classes=CLASSES, scale=1.0):
        from tare_inside.workloads.layers import WordLstm, scaled

        return WordLstm(classes, scaled(650, scale), layers=2)


class MobileBert(object):
    """MobileBERT (Sun et al. 2020) with its masked-language head: 24.6 M parameters of encoder, 12 M of head."""

    TITLE = "MobileBERT"
    KIND = "tokens"
    INPUT = (128,)
    CLASSES = 30522  # the vocabulary
    PARAMS = 36596538
    FLOPS = 4751334656
    LONGEST = 512

    @classmethod
    def build(cls, classes=CLASSES, scale=1.0):
        """With the article's initialisation; `scale` is the share of its depth and of its width."""
        from tare_inside.workloads.layers import MaskedLanguage, repeated, scaled

        narrow = scaled(128, scale)  # the width of an embedded token, too
        return MaskedLanguage(classes, cls.LONGEST, narrow, 4 * narrow, narrow, repeated(24, scale))


class BertLarge(object):
    """BERT-large (Devlin et al. 2018) for question answering: two scores per token, start and end of the answer."""

    TITLE = "BERT-large"
    KIND = "questions"
    INPUT = (384,)
    CLASSES = 2  # start, end
    PARAMS = 334094338
    FLOPS = 123336131328
    VOCABULARY = 30522
    LONGEST = 512

    @classmethod
    def build(cls, classes=CLASSES, scale=1.0):
        """`scale` is the share of its depth and of its heads."""
        from tare_inside.workloads.layers import QuestionAnswering, repeated

        if classes != cls.CLASSES:
            raise ValueError(
                "BERT-large here scores where an answer starts and ends: 2 classes, not {}.".format(classes)
            )
        heads = repeated(16, scale)
        return QuestionAnswering(cls.VOCABULARY, cls.LONGEST, heads * 64, heads, repeated(24, scale))


class Gpt2(object):
    """GPT-2 (Radford et al. 2019): a decoder, in the article's two smaller sizes and a tiny one for tests."""

    TITLE = "GPT-2"
    KIND = "tokens"
    INPUT = (128,)
    CLASSES = 50257  # the vocabulary
    PARAMS = 124439808
    FLOPS = 16129622016
    LONGEST = 1024

    HEAD_WIDTH = 64
    SIZES = {"tiny": (2, 2, 1024), "small": (12, 12, CLASSES), "medium": (24, 16, CLASSES)}  # layers, heads, vocabulary
    TITLES = {"tiny": "GPT-2 tiny", "small": "GPT-2 (124 M)", "medium": "GPT-2 medium (355 M)"}

    @classmethod
    def build(cls, classes=None, scale=1.0, size="small"):
        """With the article's initialisation; `scale` is the share of its depth and of its heads."""
        from tare_inside.workloads.layers import Decoder, repeated

        layers, heads, vocabulary = cls.SIZES[size]
        heads = repeated(heads, scale)
        return Decoder(classes or vocabulary, cls.LONGEST, heads * cls.HEAD_WIDTH, heads, repeated(layers, scale))


class RnnT(object):
    """RNN-T as MLPerf has it: an encoder of five LSTM layers with a time reduction, prediction and joint network."""

    TITLE = "RNN-T"
    KIND = "speech"
    INPUT = (500, 240)  # 15 s: frames of 80 mel channels every 10 ms, three of them side by side
    CLASSES = 29  # 26 letters, blank space, apostrophe; the last one says "no letter"
    PARAMS = 45323037
    FLOPS = 14724103250  # of 15 s, with one letter and one joint score for each encoded frame

    @classmethod
    def build(cls, classes=CLASSES, scale=1.0):
        from tare_inside.workloads.layers import Transducer, scaled

        encoded, predicted, joint = (scaled(width, scale) for width in (1024, 320, 512))
        return Transducer(cls.INPUT[1], encoded, predicted, joint, classes)


class Dlrm(object):
    """DLRM (Naumov et al. 2019) in the size of MLPerf's for the Criteo Kaggle click log."""

    TITLE = "DLRM"
    KIND = "clicks"
    INPUT = (39,)  # 13 numbers, 26 categories
    CLASSES = 1
    PARAMS = 540677217
    FLOPS = 487649
    NUMBERS = 13

    _ROWS = (  # how many values each of the 26 categories of the Kaggle log has
        1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
        27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
    )  # fmt: skip

    @classmethod
    def table_rows(cls, scale=1.0):
        """The rows of each table, in the order of the categories; a scale leaves the smallest ones as they are."""
        from tare_inside.workloads.layers import checked

        checked(scale)
        return tuple(min(rows, max(4, int(rows * scale + 0.5))) for rows in cls._ROWS)

    @classmethod
    def build(cls, classes=CLASSES, scale=1.0):
        """`scale` is the share of the tables' rows."""
        from tare_inside.workloads.layers import Recommender

        if classes != cls.CLASSES:
            raise ValueError("DLRM gives one score, how likely a click is: 1 class, not {}.".format(classes))
        return Recommender(cls.NUMBERS, cls.table_rows(scale), (512, 256, 64, 16), (512, 256, 1))
