"""One application a file: from files on disk to answers, with everything in between.

Each has TITLE, MODEL, DATA, ITEMS (how many the paper's load has), LINES_AN_ITEM where an item is several of the data
set's, and `prepare(folder, options)`. That gives the task and the device on which its tensors are wanted; a task has
`items`, `pre(items)` -> (tensors, what `post` will want to know, one entry an item), `infer(*tensors)`, and
`post(outputs, known)` -> one answer an item.
"""
