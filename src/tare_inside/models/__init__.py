"""One network a file. Each has TITLE, for people, and build(), which returns the module; torch is imported in build().

KIND says which data fit ("image", "tokens", "speech", "questions", "clicks"), INPUT is the shape of one item, CLASSES
the class count for which PARAMS (parameters) and FLOPS are true. FLOPS counts one item through the network, forward:
each multiplication with its addition once, each bias once, each normalised value twice. The papers' tables count so.
"""
