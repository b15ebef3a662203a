"""What the kernel's view adds to tare (see `tare.base.rooms`)."""

OFFERS = {
    "figures": {"kernel": "tare.kernel.figures:FIGURES"},
    "sections": {"kernel": "tare.kernel.sections:traced_figures"},
    "thinning": {"kernel": "tare.kernel.thinning:kept"},
    "verbs": {"analyse kernel": "tare.kernel.analyse:kernel", "trace": "tare.kernel.verbs:command"},
}
VERBS = {"trace": ("Manage", "import, simulate, tegrastats: recordings of other tools.")}
READING = ("analyse kernel", "trace simulate")
