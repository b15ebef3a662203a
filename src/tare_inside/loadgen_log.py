"""What LoadGen wrote: its summary as it stands, and the figures of its detailed log by their own names.

The detailed log has one JSON object a line after the word `:::MLLOG`; of it the results, the settings that were in
effect and the errors are taken.
"""

import io
import json
import os

SUMMARY, DETAIL = "mlperf_log_summary.txt", "mlperf_log_detail.txt"
_WORD = ":::MLLOG "


def read(folder):
    """LoadGen's verdict, its reasons, results and settings; ValueError where its files say no result."""
    summary, detail = _text(folder, SUMMARY), entries(_text(folder, DETAIL))
    values = dict(detail)
    if "result_validity" not in values:
        raise ValueError("LoadGen left no result in {}: {}".format(os.path.join(folder, DETAIL), _errors(detail)))
    return {
        "result": values["result_validity"],
        "scenario": values.get("effective_scenario"),
        "version": values.get("loadgen_version"),
        "reasons": reasons(values),
        "results": _named(values, "result_"),
        "settings": _named(values, "effective_"),
        "summary": summary,
    }


def entries(text):
    """(key, value) of each line, in order; a line that is not whole is left out."""
    found = []
    for line in text.splitlines():
        if not line.startswith(_WORD):
            continue
        try:
            entry = json.loads(line[len(_WORD) :])
        except ValueError:
            continue
        found.append((entry.get("key"), entry.get("value")))
    return found


def reasons(values):
    """Why the result is not valid, in LoadGen's words; nothing where it is."""
    if values["result_validity"] == "VALID":
        return []
    said = [values.get("result_invalid_reason"), values.get("early_stopping_result")]
    return [" ".join(text.split()) for text in said if text and text.strip()]


def _named(values, start):
    return {key[len(start) :]: value for key, value in values.items() if key.startswith(start)}


def _errors(detail):
    said = [str(value) for key, value in detail if key and "error" in key and value]
    return "; ".join(said)[:300] or "it ended early."


def _text(folder, name):
    try:
        with io.open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as problem:
        raise ValueError("LoadGen wrote no {}: {}".format(name, problem.strerror))
