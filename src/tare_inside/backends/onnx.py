"""ONNX Runtime: the network is exported, opened in a session, and checked against PyTorch before anything is timed."""

import importlib.util
import os
import warnings

TITLE = "ONNX Runtime"
RELATIVE = 1e-3
ABSOLUTE = {"cpu": 1e-4, "cuda": 1e-3}  # of the largest value: single precision; 6e-4 were seen in ResNet-152 by cuDNN
OPSET = 14  # the newest that torch 1.12 can write

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def obstacle(device):
    """Why ONNX Runtime cannot be used here, as a sentence; None if it can."""
    missing = [name for name in ("onnxruntime", "onnx") if importlib.util.find_spec(name) is None]
    if missing:
        return "`backend: onnx` needs {0}: `pip install {0}`, or set `backend: eager`.".format(" ".join(missing))
    import onnxruntime

    if _PROVIDERS[device] not in onnxruntime.get_available_providers():
        return "this ONNX Runtime has no {}: `pip install onnxruntime-gpu`, or set `device: cpu`.".format(
            _PROVIDERS[device]
        )
    return None


def opened(network, example, options):
    """A function that runs the exported network; its tensors stay on the host, the session moves them itself."""
    problem = obstacle(options["device"])
    if problem is not None:
        raise ValueError(problem)
    path = os.path.join(options["folder"], "network.onnx")
    network = network.to("cpu")
    names = export(network, example, path, options.get("free") or (0,))
    run = _running(_session(path, options), names)
    check(network, run, example, ABSOLUTE[options["device"]])
    return run, "cpu"


def export(network, example, path, free):
    """Write the network to `path`, with these dimensions of its inputs and outputs free; the names of its inputs."""
    import torch

    names = ["input_{}".format(number) for number in range(len(example))]
    outputs = ["output_{}".format(number) for number in range(len(_all(_computed(network, example))))]
    options = {
        "input_names": names,
        "output_names": outputs,
        "opset_version": OPSET,
        "dynamic_axes": {name: {axis: "{}_{}".format(name, axis) for axis in free} for name in names + outputs},
    }
    if _has_two_exporters(torch):
        options["dynamo"] = False  # the newer one needs onnxscript and twenty times as long
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says of every shape that is fixed, and of itself, that it is old
        torch.onnx.export(network, tuple(example), path, **options)
    return names


def _has_two_exporters(torch):
    import inspect

    return "dynamo" in inspect.signature(torch.onnx.export).parameters


def _session(path, options):
    import onnxruntime

    requested = onnxruntime.SessionOptions()
    if options.get("threads") is not None:
        requested.intra_op_num_threads = options["threads"]
    requested.log_severity_level = 3  # errors; a warning for each initialiser that nobody uses helps no one
    provider = _PROVIDERS[options["device"]]
    on_gpu = options["device"] == "cuda"
    # Without TF32: else it computes with 10 bits what must match. Before 1.18 there is no such option.
    version = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    given = {"use_tf32": "0"} if on_gpu and version >= (1, 18) else {}
    if on_gpu and hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()  # CUDA and cuDNN as PyTorch brings them along
    try:
        session = onnxruntime.InferenceSession(path, requested, providers=[(provider, given)])
    except Exception as problem:  # its classes come from C++ and differ between versions
        raise ValueError("ONNX Runtime cannot open the exported network: {}".format(str(problem)[:300]))
    if provider not in session.get_providers():  # it says so in its log alone, and takes the CPU
        raise ValueError(
            "ONNX Runtime could not load its {} and would have computed on the CPU: its version needs the CUDA and "
            "cuDNN that this PyTorch has.".format(provider)
        )
    return session


def _running(session, names):
    import torch

    taken = {each.name for each in session.get_inputs()}  # an input that nothing depends on is dropped in the export
    from_numpy = torch.from_numpy

    def run(*tensors):
        given = {name: tensor.numpy() for name, tensor in zip(names, tensors) if name in taken}
        outputs = [from_numpy(array) for array in session.run(None, given)]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return run


def check(network, run, example, absolute=ABSOLUTE["cpu"]):
    """ValueError unless the session computes what PyTorch does, within single precision."""
    import torch

    for ours, theirs in zip(_all(_computed(network, example)), _all(run(*example))):
        if not torch.allclose(ours, theirs, rtol=RELATIVE, atol=absolute * max(1.0, float(ours.abs().max()))):
            raise ValueError(
                "ONNX Runtime computes something else than PyTorch: they differ by up to {:.3g} where values reach "
                "{:.3g}.".format(float((ours - theirs).abs().max()), float(ours.abs().max()))
            )


def _computed(network, example):
    import torch

    with torch.no_grad():
        return network(*example)


def _all(outputs):
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
