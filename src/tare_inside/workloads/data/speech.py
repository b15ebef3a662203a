"""Spoken sentences with what was said: LibriSpeech's folders, with WAV files as MLPerf's RNN-T turns them into.

    dev-clean/SPEAKER/CHAPTER/SPEAKER-CHAPTER-0000.wav    16 kHz, one channel, 16 bit
    dev-clean/SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt   a line a clip: its name, then what is said, in capitals

The papers' load is 1,200 clips of 15 s. LibriSpeech itself comes as FLAC, which must be turned into WAV first.
"""

import io
import os
import wave

from tare_inside.workloads.formats import make as making
from tare_inside.workloads.formats import pictures, synthetic

TITLE = "speech clips (LibriSpeech)"
KIND = "speech"
FORMAT = "LibriSpeech folders with WAV"
ITEMS = 1200
BYTES = ITEMS * (44 + 2 * 15 * synthetic.RATE_HZ)

CLIP_S = 15

_SET = "dev-clean"
_A_CHAPTER = 20  # clips
_TRANSCRIPT = ".trans.txt"
_SPOKEN_WORDS = (36, 44)


def units(count):
    """In how many units it is made."""
    return (count + _A_CHAPTER - 1) // _A_CHAPTER


def maker(count, seed):
    """From a unit to its files: the clips of a chapter, and what is said in them."""
    speaker, writer = synthetic.Voices(seed), synthetic.Prose(seed)

    def files_of(unit):
        name = "{}-{}".format(1000 + unit // 3, 100000 + unit)
        top, lines = os.path.join(_SET, *name.split("-")), []
        for number in range(min(_A_CHAPTER, count - unit * _A_CHAPTER)):
            luck = making.chance("speech", seed, unit, number)
            text = " ".join(writer.phrase(luck, luck.randrange(*_SPOKEN_WORDS)))
            clip = "{}-{:04d}".format(name, number)
            lines.append("{} {}".format(clip, text.upper()))
            yield os.path.join(top, clip + ".wav"), _as_wav(speaker.said(luck, text, CLIP_S))
        yield os.path.join(top, name + _TRANSCRIPT), ("\n".join(lines) + "\n").encode()

    return files_of


def _as_wav(samples):
    into = io.BytesIO()
    file = wave.open(into, "wb")
    file.setparams((1, 2, synthetic.RATE_HZ, len(samples) // 2, "NONE", "not compressed"))
    file.writeframes(samples)
    file.close()
    return into.getvalue()


def obstacle(folder, items):
    """Why this folder cannot be used, as a sentence; None if it can."""
    try:
        paths, _ = _transcribed(folder)
    except (OSError, ValueError) as problem:
        return str(problem)
    if len(paths) < items:
        return "{}: {} clips are needed and there are {}.".format(folder, items, len(paths))
    return None


def recognise(folder):
    """Whether the folder looks like this data set."""
    return any(name.endswith(_TRANSCRIPT) for _, _, names in os.walk(folder) for name in names)


def describe(folder):
    """What is there, for `tare device data check`."""
    problems, sizes, seconds = [], [], 0.0
    paths, _ = _transcribed(folder)
    for path in paths:
        try:
            content = pictures.read(path)
            seconds += len(_samples(content, path)) / (2.0 * synthetic.RATE_HZ)
            sizes.append(len(content))
        except ValueError as problem:
            problems.append(str(problem))
    reported = {"items": len(paths), "problems": problems, "seconds": round(seconds, 3)}
    return dict(reported, **pictures.size_statistics(sizes)) if sizes else reported


class Dataset(object):
    """Items (samples between -1 and 1, what is said), each clip read from its file at each read."""

    def __init__(self, folder):
        import torch

        self._folder = folder
        self._paths, self._texts = _transcribed(folder)
        self._torch = torch

    def __len__(self):
        return len(self._paths)

    def __getitem__(self, index):
        torch, path = self._torch, self._paths[index]
        samples = _samples(pictures.read(path), path)
        return torch.frombuffer(bytearray(samples), dtype=torch.int16).float().mul_(1 / 32768.0), self._texts[index]

    def path(self, index):
        """The file of an item."""
        return self._paths[index]

    def __reduce__(self):
        return Dataset, (self._folder,)


def _samples(content, path):
    """The samples of a WAV file, as bytes; ValueError for anything but whole 16 kHz, one channel, 16 bit."""
    try:
        with wave.open(io.BytesIO(content)) as file:
            form = (file.getframerate(), file.getnchannels(), file.getsampwidth())
            frames = file.getnframes()
            samples = file.readframes(frames)
    except (wave.Error, EOFError) as problem:
        raise ValueError("{}: this is not a WAV file: {}".format(path, problem or "it ends too early"))
    if form != (synthetic.RATE_HZ, 1, 2):
        raise ValueError(
            "{}: it has {} Hz, {} channel(s) and {} bit; 16000 Hz, one channel and 16 bit are wanted.".format(
                path, form[0], form[1], 8 * form[2]
            )
        )
    if len(samples) != 2 * frames or not frames:
        raise ValueError("{}: it says {} samples and has {}.".format(path, frames, len(samples) // 2))
    return samples


def _transcribed(folder):
    """Paths of the clips and what is said in each, in the order of names."""
    found = []
    for top, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name.endswith(_TRANSCRIPT):
                found += _read_transcript(top, name)
    if not found:
        raise FileNotFoundError("{}: no clip in it: WAV files with a NAME{} next to them.".format(folder, _TRANSCRIPT))
    return [path for path, _ in found], [text for _, text in found]


def _read_transcript(top, name):
    with open(os.path.join(top, name), encoding="utf-8") as file:
        lines = file.read().splitlines()
    found = []
    for line in lines:
        clip, _, text = line.partition(" ")
        path = os.path.join(top, clip + ".wav")
        if os.path.exists(path[:-4] + ".flac") and not os.path.exists(path):
            raise ValueError(
                "{}: turn the FLAC files into 16 kHz WAV first, as MLPerf does.".format(path[:-4] + ".flac")
            )
        found.append((path, text))
    return found
