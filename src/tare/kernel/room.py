"""What the kernel's view adds to tare (see `tare.base.rooms`)."""

OFFERS = {
    "figures": {"kernel": "tare.kernel.figures:FIGURES"},
    "sections": {"kernel": "tare.kernel.sections:traced_figures"},
    "thinning": {"kernel": "tare.kernel.thinning:kept"},
    "verbs": {"show kernel": "tare.kernel.topic:kernel", "trace": "tare.kernel.verbs:command"},
}
VERBS = {"trace": ("Results", "import, simulate, tegrastats: recordings of other tools.")}
READING = ("show kernel", "trace simulate")
