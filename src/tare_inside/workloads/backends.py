"""The ways to run a network, a class each: `obstacle(device)` says why it cannot, `opened(...)` gives what does.

`opened(network, example, options)` takes the network, a tuple of tensors like those it will get, and the job's options
(`device`, `threads`, `folder` for what it writes, `any_batch` where batches differ in size, `free`: the dimensions that
may differ from the example's, the first unless said). It returns the function (tensors in, tensors out) and the device
on which the function wants its tensors.
"""

import importlib.util
import inspect
import os
import shutil
import warnings

NAMES = ("compile", "eager", "onnx")
"""In a study; each is the class of that name (see named.py)."""


class Eager(object):
    """PyTorch as it comes: each operation when its line is reached."""

    TITLE = "PyTorch eager"

    @staticmethod
    def obstacle(device):
        """Nothing can be in the way where torch is."""
        return None

    @staticmethod
    def opened(network, example, options):
        """The network itself, on its device."""
        return network.to(options["device"]), options["device"]


class Compile(object):
    """torch.compile with its default back end; what it builds is kept in the trial's own folder: each compiles."""

    TITLE = "torch.compile"

    @staticmethod
    def obstacle(device):
        """Why torch.compile cannot work here, as a sentence; None if it can."""
        import torch

        if not hasattr(torch, "compile"):
            return "PyTorch {} has no torch.compile (2.0 and later have it); set `backend: eager`.".format(
                torch.__version__
            )
        if device == "cuda":
            if importlib.util.find_spec("triton") is None:
                return "torch.compile needs Triton for the GPU: `pip install triton`, or set `backend: eager`."
            return None
        compilers = (os.environ.get("CXX"),) if os.environ.get("CXX") else ("c++", "g++", "clang++")  # as torch looks
        if not any(shutil.which(name) for name in compilers):
            return "torch.compile needs a C++ compiler and there is none on PATH: install g++, or set `backend: eager`."
        return None

    @classmethod
    def opened(cls, network, example, options):
        """The network, compiled for tensors like the example by a first call."""
        problem = cls.obstacle(options["device"])
        if problem is not None:
            raise ValueError(problem)
        # Not the user's cache: what one trial left there would spare the next one the work.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(options["folder"], "inductor")
        import torch

        compiled = torch.compile(network.to(options["device"]), dynamic=bool(options.get("any_batch")))
        try:
            with torch.inference_mode():
                compiled(*[tensor.to(options["device"]) for tensor in example])
        except Exception as problem:  # torch wraps what its compiler says in classes of its own
            lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
            reported = lines[0][:300] if lines else type(problem).__name__
            raise ValueError("torch.compile could not build the network: {}".format(reported))
        return compiled, options["device"]


class Onnx(object):
    """ONNX Runtime: the network is exported, opened in a session, and checked against PyTorch before it is timed."""

    TITLE = "ONNX Runtime"
    RELATIVE = 1e-3
    ABSOLUTE = {"cpu": 1e-4, "cuda": 1e-3}  # of the largest value: single precision; 6e-4 in ResNet-152 by cuDNN
    OPSET = 14  # the newest that torch 1.12 can write
    PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}

    @classmethod
    def obstacle(cls, device):
        """Why ONNX Runtime cannot be used here, as a sentence; None if it can."""
        missing = [name for name in ("onnxruntime", "onnx") if importlib.util.find_spec(name) is None]
        if missing:
            return "`backend: onnx` needs {0}: `pip install {0}`, or set `backend: eager`.".format(" ".join(missing))
        import onnxruntime

        if cls.PROVIDERS[device] not in onnxruntime.get_available_providers():
            return "this ONNX Runtime has no {}: `pip install onnxruntime-gpu`, or set `device: cpu`.".format(
                cls.PROVIDERS[device]
            )
        return None

    @classmethod
    def opened(cls, network, example, options):
        """A function that runs the exported network; its tensors stay on the host, the session moves them itself."""
        problem = cls.obstacle(options["device"])
        if problem is not None:
            raise ValueError(problem)
        path = os.path.join(options["folder"], "network.onnx")
        network = network.to("cpu")
        names = export(network, example, path, options.get("free") or (0,))
        run = _running(_session(path, options), names)
        check(network, run, example, cls.ABSOLUTE[options["device"]])
        return run, "cpu"


def export(network, example, path, free):
    """Write the network to `path`, with these dimensions of its inputs and outputs free; the names of its inputs."""
    import torch

    names = ["input_{}".format(number) for number in range(len(example))]
    outputs = ["output_{}".format(number) for number in range(len(_all(_computed(network, example))))]
    options = {
        "input_names": names,
        "output_names": outputs,
        "opset_version": Onnx.OPSET,
        "dynamic_axes": {name: {axis: "{}_{}".format(name, axis) for axis in free} for name in names + outputs},
    }
    if "dynamo" in inspect.signature(torch.onnx.export).parameters:
        options["dynamo"] = False  # the newer one needs onnxscript and twenty times as long
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says of every shape that is fixed, and of itself, that it is old
        torch.onnx.export(network, tuple(example), path, **options)
    return names


def _session(path, options):
    import onnxruntime

    requested = onnxruntime.SessionOptions()
    if options.get("threads") is not None:
        requested.intra_op_num_threads = options["threads"]
    requested.log_severity_level = 3  # errors; a warning for each initialiser that nobody uses helps no one
    provider = Onnx.PROVIDERS[options["device"]]
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


def check(network, run, example, absolute=Onnx.ABSOLUTE["cpu"]):
    """ValueError unless the session computes what PyTorch does, within single precision."""
    import torch

    for ours, theirs in zip(_all(_computed(network, example)), _all(run(*example))):
        if not torch.allclose(ours, theirs, rtol=Onnx.RELATIVE, atol=absolute * max(1.0, float(ours.abs().max()))):
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
