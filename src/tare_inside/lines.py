"""The lines of large text files, by number: each is read from disk when it is asked for.

What is kept in memory is only how many lines begin before each block of 64 KiB.
"""

import bisect
import os

_BLOCK_BYTES = 1 << 16


def count(path, enough):
    """How many lines a file has; it is not read further than to `enough` of them."""
    there, block = 0, b"\n"
    with open(path, "rb", buffering=0) as file:
        while there < enough:
            content = file.read(_BLOCK_BYTES)
            if not content:
                return there + (not block.endswith(b"\n"))
            block = content
            there += block.count(b"\n")
    return there


class Lines(object):
    """The lines of several files, one after the other."""

    def __init__(self, paths):
        self._paths, self._files = paths, []
        self._blocks, self._before = [], [0]  # (file, offset) of each block; how many lines end before it
        for number, path in enumerate(paths):
            self._files.append(os.open(path, os.O_RDONLY))
            self._index(number)

    def _index(self, number):
        offset, file, content = 0, self._files[number], b"\n"
        while True:
            block = os.pread(file, _BLOCK_BYTES, offset)
            if not block:
                break
            content = block
            self._blocks.append((number, offset))
            self._before.append(self._before[-1] + block.count(b"\n"))
            offset += len(block)
        if not content.endswith(b"\n"):
            self._before[-1] += 1  # the last line of a file may lack its end

    def __len__(self):
        return self._before[-1]

    def path(self, index):
        """The file that a line is in."""
        return self._paths[self._blocks[bisect.bisect_right(self._before, index) - 1][0]]

    def __getitem__(self, index):
        if not 0 <= index < len(self):
            raise IndexError(index)
        block = bisect.bisect_right(self._before, index) - 1
        number, offset = self._blocks[block]
        content = self._read(block)
        lines = content.split(b"\n")
        place = index - self._before[block]
        line = lines[place]
        if place == 0:  # it may have begun in blocks before this one
            while offset > 0:
                block -= 1
                offset = self._blocks[block][1]
                head, found, tail = self._read(block).rpartition(b"\n")
                line = (tail if found else tail or head) + line
                if found:
                    break
        return line

    def _read(self, block):
        number, offset = self._blocks[block]
        return os.pread(self._files[number], _BLOCK_BYTES, offset)

    def close(self):
        """Close the files."""
        while self._files:
            os.close(self._files.pop())

    def __del__(self):
        self.close()
