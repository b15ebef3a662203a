"""`tare trace tegrastats`: one JSON object a line of the log, and the rest named on stderr."""

import json
import subprocess
import sys
from pathlib import Path

from typed import typed

LOG = Path(__file__).parents[2] / "recordings" / "jetson" / "tegrastats.txt"


def replay(*words, code=0, piped=None):
    """In this process; what is piped in, to a process of its own."""
    if piped is None:
        done = typed("trace", *map(str, words))
    else:
        command = [sys.executable, "-m", "tare.cli", "trace", *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, input=piped)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_each_line_of_the_log_is_one_object_on_a_line():
    done = replay("tegrastats", LOG, "--json")
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert [len(one["cpus"]) for one in objects] == [6, 4, 8, 6, 12, 12, 6]
    assert objects[4]["power_total_w"] == 12.377


def test_lines_of_something_else_are_counted_and_named():
    talk = replay("tegrastats", LOG, "--json").stderr
    assert "line 4 is not of tegrastats: '# jetson-nano, L4T r32'" in talk
    assert "8 of 15 lines are not of tegrastats" in talk


def test_a_log_can_be_piped_in_and_read_as_a_table():
    table = replay("tegrastats", "-", piped=LOG.read_text()).stdout
    assert " ".join(table.splitlines()[0].split()) == "line RAM swap cores CPU GPU clock EMC hottest module"
    assert "12.38 W" in table


def test_a_log_of_something_else_is_an_error_and_prints_no_data(tmp_path):
    (tmp_path / "log").write_bytes(b"\x00\xff\xfe nothing\n\n")
    done = replay("tegrastats", tmp_path / "log", "--json", code=1)
    assert done.stdout == ""
    assert "no line of tegrastats" in done.stderr


def test_a_line_without_an_end_is_refused_and_not_taken_into_memory():
    assert "line 1 has more than 65,536 characters" in replay("tegrastats", "/dev/zero", code=1).stderr


def test_a_table_of_too_many_lines_is_refused_and_json_has_no_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("tare.kernel.verbs.MOST_ROWS", 6)
    assert "more than 6 lines, too many for one table" in replay("tegrastats", LOG, code=1).stderr
    assert len(replay("tegrastats", LOG, "--json").stdout.splitlines()) == 7


def test_of_many_lines_of_something_else_twenty_are_kept_to_be_named(tmp_path):
    (tmp_path / "log").write_text(LOG.read_text() + "nothing\n" * 100)
    talk = replay("tegrastats", tmp_path / "log", "--json").stderr
    assert talk.count("is not of tegrastats") == 20
    assert "108 of 115 lines are not of tegrastats" in talk
