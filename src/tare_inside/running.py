"""How a built-in program is run: its job is read, what came of it is written, a known problem is said in a sentence."""

import json
import sys

from tare_inside import failures, fingerprint
from tare_inside.launch import write_whole


def read_job(text):
    """The job, from JSON or from the file that holds it."""
    if text.lstrip().startswith("{"):
        return json.loads(text)
    with open(text) as file:
        return json.load(file)


def program(work, job, shown):
    """Do the work, write what came of it, and print the part that is `shown`; returns the exit code."""
    try:
        outcome = work(job)
    except Exception as problem:
        sentence = failures.explained(problem, job)
        if sentence is None:
            raise
        sys.stderr.write("tare: {}\n".format(sentence))
        return 1
    write_whole(job["outcome"], outcome)
    write_whole(job["fingerprint"], fingerprint.gather())
    print(json.dumps({name: outcome[name] for name in shown if name in outcome}))
    return 0
