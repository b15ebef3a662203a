"""The workloads, each in the file of its name, or of its subject."""

SHARED = {
    "gpt2": ("finetune", "generate"),
    "idle": ("idle", "null"),
    "inference": ("application", "loadgen", "torch_infer"),
}
"""Files of several workloads, which are classes in it (see tare_inside/named.py); others have a file of their own."""
