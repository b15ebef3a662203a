"""One data set a file: its format on disk, how to make one like it, and how to read it item by item.

Each has TITLE, KIND (image, text, speech, questions, clicks), FORMAT in a few words, ITEMS and BYTES of the real one,
CLASSES where there are some, NEEDS (modules that making and reading need beside torch), and

    units(count)                                      in how many units a synthetic one is made (see formats/make.py)
    maker(count, seed)                                from a unit to its files, as pairs of name and bytes
    obstacle(folder, items)                           why it cannot be used, as a sentence; None if it can
    recognise(folder), describe(folder)               for `tare device data check`: by the files, not by a manifest
    Dataset(folder, ...)                              items, each read and decoded at each read; len(), .classes
"""
