"""One way to run a network a file: `obstacle(device)` says why it cannot, `opened(...)` gives a function that does.

`opened(network, example, options)` takes the network, a tuple of tensors like those it will get, and the job's options
(`device`, `threads`, `folder` for what it writes, `any_batch` where batches differ in size, `free`: the dimensions that
may differ from the example's, the first unless said). It returns the function (tensors in, tensors out) and the device
on which the function wants its tensors.
"""
