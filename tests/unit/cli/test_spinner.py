"""A line for whoever waits, on a terminal alone, gone at the end."""

import io
import time

from tare.cli.scaffold import spinner


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, stream, seconds, quiet_s, term="xterm"):
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", term)
    with spinner("reading the trace", quiet_s):
        time.sleep(seconds)
    return stream.getvalue()


def test_after_a_while_it_says_what_it_does_and_takes_that_away(monkeypatch):
    text = shown(monkeypatch, Terminal(), 0.8, 0.05)
    assert "reading the trace" in text
    assert text.rstrip().endswith("\x1b[2K")  # the line is cleared


def test_what_is_quick_says_nothing(monkeypatch):
    assert shown(monkeypatch, Terminal(), 0.0, 5.0) == ""


def test_a_pipe_and_a_dumb_terminal_are_left_alone(monkeypatch):
    assert shown(monkeypatch, io.StringIO(), 0.6, 0.01) == ""
    assert shown(monkeypatch, Terminal(), 0.6, 0.01, term="dumb") == ""
