"""Image classification: a JPEG file is decoded, resized, cropped, normalised; ResNet-50; the five likeliest classes."""

TITLE = "image classification"
MODEL = "resnet50"
DATA = "imagenet"
ITEMS = 1000

LIKELIEST = 5


class Task(object):
    """Pictures on disk and a network that knows a thousand kinds of things."""

    def __init__(self, pictures, infer):
        self._pictures = pictures
        self.infer = infer
        self.items = len(pictures)

    def pre(self, items):
        import torch

        return (torch.stack([self._pictures[item][0] for item in items]),), [None] * len(items)

    def post(self, outputs, known):
        """The likeliest classes of each picture, the likeliest first."""
        shares = outputs.float().cpu().softmax(1)
        return shares.topk(min(LIKELIEST, shares.shape[1])).indices.tolist()


def prepare(folder, options):
    """The task, and where its tensors are wanted."""
    from tare_inside.data import imagenet
    from tare_inside.models import resnet50
    from tare_inside.programs import tasks
    from tare_inside.programs import tasks as weights

    side = options.get("pixels") or resnet50.INPUT[-1]
    pictures = imagenet.Dataset(folder, pixels=side)
    example = (weights.noise((max(tasks.SETTLING, options["batch"]), 3, side, side), tasks.DATA_SEED),)
    network = weights.seeded(MODEL, options["seed"], (example[0][: tasks.SETTLING],), options["scale"])
    infer, tensors_on = tasks.open_backend(network, (example[0][: options["batch"]],), options)
    return Task(pictures, infer), tensors_on
