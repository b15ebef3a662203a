"""From a file with a picture in it to a tensor: read, decode, resize, crop, normalise, at each read.

The pixels are those of torchvision's Resize, CenterCrop or RandomResizedCrop with RandomHorizontalFlip, ToTensor and
Normalize, within 1/255; what is saved is work that does not show: no copy of a picture that is RGB already, no resizing
of what is cropped away.
"""

import io
import math
import os

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet; GLD is trained with the same
CROPS = ("centre", "random")

_MARGIN = 256 / 224.0  # how much larger than the crop the picture is made first
_AREAS, _ASPECTS, _TRIES = (0.08, 1.0), (3 / 4.0, 4 / 3.0), 10


class Pictures(object):
    """Items (picture, label) of files that each hold one picture; the files are opened at each read."""

    def __init__(self, paths, labels, classes, pixels=None, crop="centre"):
        import torch
        from PIL import Image

        if crop not in CROPS:
            raise ValueError("no crop {!r}. Available: {}".format(crop, ", ".join(CROPS)))
        self._view = (paths, labels, classes, pixels, crop)
        self._paths, self._labels = paths, labels
        self.classes = classes
        self._decode, self._normalise = decoder(Image), normaliser(torch, MEAN, DEVIATION)
        self._fit = fitting(torch, Image, pixels, crop)

    def __len__(self):
        return len(self._paths)

    def __getitem__(self, index):
        path = self._paths[index]
        return self._normalise(self._fit(self._decode(read(path), path))), self._labels[index]

    def path(self, index):
        """The file of an item."""
        return self._paths[index]

    def raw(self, index):
        """The item as it lies on disk: the bytes of its file, and its label."""
        return read(self._paths[index]), self._labels[index]

    def __reduce__(self):
        return Pictures, self._view


def too_few(folder, count, needed, what="pictures"):
    """That an epoch needs more than there are, as a sentence; None if there are enough."""
    if count >= needed:
        return None
    text = "{}: an epoch needs {} {} and there are {}; ask for fewer steps_per_epoch."
    return text.format(folder, needed, what, count)


def read(path):
    """The bytes of a file; ValueError, naming it, where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError as problem:
        raise ValueError("{}: it cannot be read: {}".format(path, problem.strerror))


def decoder(image):
    """A function from bytes, and the name of where they came from, to an RGB picture."""

    def decode(content, path):
        try:
            picture = image.open(io.BytesIO(content))
            picture.load()
            return picture if picture.mode == "RGB" else picture.convert("RGB")
        except (OSError, ValueError, SyntaxError) as problem:
            raise ValueError("{}: this is not a whole picture: {}".format(path, problem))

    return decode


def fitting(torch, image, pixels, crop):
    """A function that brings a picture to `pixels` x `pixels`; None leaves it as it is."""
    if pixels is None:
        return lambda picture: picture
    if crop == "centre":
        return lambda picture: centre(image, picture, pixels)
    return lambda picture: random_part(torch, image, picture, pixels)


def centre(image, picture, pixels):
    """The middle of the picture, after its shorter side is made a seventh longer than `pixels` (256 for 224)."""
    width, height = picture.size
    side = int(round(pixels * _MARGIN))
    if width <= height:
        wide, high = side, int(side * height / width)
    else:
        wide, high = int(side * width / height), side
    left, top = int(round((wide - pixels) / 2.0)), int(round((high - pixels) / 2.0))
    across, down = width / float(wide), height / float(high)
    # Resizing only what the crop keeps: a box takes its neighbours into account, so the pixels are the same.
    box = (left * across, top * down, min(width, (left + pixels) * across), min(height, (top + pixels) * down))
    return picture.resize((pixels, pixels), image.BILINEAR, box)


def random_part(torch, image, picture, pixels):
    """A random part of the picture of random size and shape, made square; mirrored half of the time."""
    left, top, right, bottom = part(torch.rand, *picture.size)
    picture = picture.crop((left, top, right, bottom)).resize((pixels, pixels), image.BILINEAR)
    return picture.transpose(image.FLIP_LEFT_RIGHT) if torch.rand(1).item() < 0.5 else picture


def part(draw, width, height):
    """A box of 8 to 100 % of the area, 3:4 to 4:3 in shape; the middle if ten tries find none that fits."""
    low, high = (math.log(aspect) for aspect in _ASPECTS)
    for _ in range(_TRIES):
        by_area, by_shape, by_left, by_top = draw(4).tolist()
        area = width * height * (_AREAS[0] + (_AREAS[1] - _AREAS[0]) * by_area)
        aspect = math.exp(low + (high - low) * by_shape)
        wide, tall = int(round(math.sqrt(area * aspect))), int(round(math.sqrt(area / aspect)))
        if 0 < wide <= width and 0 < tall <= height:
            left, top = int(by_left * (width - wide + 1)), int(by_top * (height - tall + 1))
            return left, top, left + wide, top + tall
    wide = min(width, int(round(height * _ASPECTS[1])))
    tall = min(height, int(round(width / _ASPECTS[0])))
    left, top = (width - wide) // 2, (height - tall) // 2
    return left, top, left + wide, top + tall


def normaliser(torch, mean, deviation):
    """A function from an RGB picture to a float tensor, channels first, mean 0 and deviation 1 over the data set."""
    scale, shift = _line(torch, mean, deviation)
    from_bytes, uint8, floats = torch.frombuffer, torch.uint8, torch.float32

    def normalise(picture):
        width, height = picture.size
        flat = from_bytes(bytearray(picture.tobytes()), dtype=uint8)
        planes = flat.view(height, width, 3).permute(2, 0, 1)
        return planes.to(floats, memory_format=torch.contiguous_format).mul_(scale).add_(shift)

    return normalise


def plane_normaliser(torch, channels, side, mean, deviation, pixels):
    """As `normaliser`, for the bytes of planes of `side` x `side`; resized in torch, so that Pillow is not needed."""
    scale, shift = _line(torch, mean, deviation)
    from_bytes, uint8 = torch.frombuffer, torch.uint8

    def normalise(planes):
        stored = from_bytes(bytearray(planes), dtype=uint8).view(channels, side, side).float()
        return resize(stored).mul_(scale).add_(shift)

    def resize(stored):
        if pixels is None or pixels == side:
            return stored
        options = {"mode": "bilinear", "align_corners": False}
        if pixels < side:
            options["antialias"] = True
        return torch.nn.functional.interpolate(stored.unsqueeze(0), size=(pixels, pixels), **options).squeeze(0)

    return normalise


def _line(torch, mean, deviation):
    """Factor and summand for bytes: (byte / 255 - mean) / deviation, done in one go."""
    mean, deviation = torch.tensor(mean).view(-1, 1, 1), torch.tensor(deviation).view(-1, 1, 1)
    return 1 / (255 * deviation), -mean / deviation


def described(paths, labels, classes):
    """What `tare device data check` says of picture files: how many, how large, which are missing or broken."""
    problems, sizes, sides = [], [], {}
    for path in paths:
        try:
            content = read(path)
            sides[_looked_at(content, path)] = sides.get(_looked_at(content, path), 0) + 1
            sizes.append(len(content))
        except ValueError as problem:
            problems.append(str(problem))
    reported = {"items": len(paths), "classes": classes, "problems": problems}
    if sizes:
        common = sorted(sides, key=lambda side: -sides[side])[:3]
        reported["commonest_pixels"] = ["{}x{}".format(*side) for side in common]
        reported.update(size_statistics(sizes))
    return reported


def size_statistics(sizes):
    """Bytes in all, and how they are spread over the items."""
    sizes = sorted(sizes)
    at = lambda share: sizes[min(len(sizes) - 1, int(share * len(sizes)))]  # noqa: E731
    return {
        "bytes": sum(sizes),
        "item_bytes": {
            "min": sizes[0],
            "p10": at(0.1),
            "median": at(0.5),
            "p90": at(0.9),
            "max": sizes[-1],
            "mean": sum(sizes) // len(sizes),
        },
    }


def _looked_at(content, path):
    """Width and height of a picture that begins and ends as it should; ValueError if not."""
    from PIL import Image

    try:
        picture = Image.open(io.BytesIO(content))
    except (OSError, ValueError, SyntaxError):
        raise ValueError("{}: this is not a picture.".format(path))
    if picture.format == "JPEG" and b"\xff\xd9" not in content[-1024:]:
        raise ValueError("{}: the end of the picture is missing ({} bytes are there).".format(path, len(content)))
    return picture.size


def listed_folder(path, endings=(".jpeg", ".jpg", ".png")):
    """The picture files of one folder, sorted."""
    with os.scandir(path) as entries:
        return sorted(entry.path for entry in entries if entry.name.lower().endswith(endings))
