"""Recommendation: lines of a click log become numbers and places in tables; DLRM; advertisements, the likeliest first.

An item is one person to whom one of CANDIDATES advertisements is to be shown, each a line of the log.
"""

TITLE = "recommendation"
MODEL = "dlrm"
DATA = "criteo"
ITEMS = 1000
LINES_AN_ITEM = CANDIDATES = 100  # MLPerf's samples have 100 to 700 lines


class Task(object):
    """A click log on disk and a network that says how likely a click is."""

    def __init__(self, log, infer):
        self._log = log
        self.infer = infer
        self.items = len(log) // CANDIDATES

    def pre(self, items):
        import torch

        lines = [self._log[item * CANDIDATES + line][0] for item in items for line in range(CANDIDATES)]
        numbers, categories = zip(*lines)
        return (torch.stack(numbers), torch.stack(categories)), [None] * len(items)

    def post(self, outputs, known):
        """For each person the candidates, the likeliest first."""
        scores = outputs.float().cpu().reshape(len(known), CANDIDATES)
        return scores.argsort(1, descending=True).tolist()


def prepare(folder, options):
    """The task, and where its tensors are wanted."""
    from tare_inside.data import criteo
    from tare_inside.models import dlrm
    from tare_inside.programs import tasks
    from tare_inside.programs import tasks as weights

    log = criteo.Dataset(folder, rows=dlrm.table_rows(options["scale"]))
    network = weights.seeded(MODEL, options["seed"], (), options["scale"])
    task = Task(log, None)
    example, _ = task.pre(range(options["batch"]))
    task.infer, tensors_on = tasks.open_backend(network, example, options)
    return task, tensors_on
