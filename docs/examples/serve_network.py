"""A network behind a small ASGI app, computed by ONNX Runtime or PyTorch, to be weighed as a server:

    python serve_network.py --backend onnx --port 8000

`GET /health` answers once it is ready. `GET /predict?seed=3` has the network classify numbers drawn from a seed, `POST
/predict` those of the body: {"values": [...]}. Both backends have the same weights, from a seed, and give the same
answers. Needs `pip install uvicorn numpy`, and `onnx onnxruntime` or `torch`.
"""

import argparse
import json
from urllib.parse import parse_qs

import numpy as np
import uvicorn

CLASSES = 10


def matrices(width, layers):
    chance = np.random.default_rng(0)
    shapes = [(width, width)] * layers + [(width, CLASSES)]
    return [(chance.standard_normal(shape) / np.sqrt(width)).astype(np.float32) for shape in shapes]


def by_onnx(weights, threads):
    import onnxruntime
    from onnx import TensorProto, checker, helper, numpy_helper

    nodes, last = [], "input"
    for number, _ in enumerate(weights):
        nodes.append(helper.make_node("MatMul", [last, f"weight_{number}"], [f"product_{number}"]))
        last = f"product_{number}"
        if number < len(weights) - 1:
            nodes.append(helper.make_node("Relu", [last], [f"layer_{number}"]))
            last = f"layer_{number}"
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, len(weights[0])])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, CLASSES])],
        [numpy_helper.from_array(values, f"weight_{number}") for number, values in enumerate(weights)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads  # 0: as many as the machine has cores, whatever the container may use
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda values: session.run(None, {"input": values})[0]


def by_torch(weights, threads):
    import torch

    if threads:
        torch.set_num_threads(threads)
    tensors = [torch.from_numpy(values) for values in weights]

    def scores(values):
        with torch.inference_mode():
            layer = torch.from_numpy(values)
            for tensor in tensors[:-1]:
                layer = torch.relu(layer @ tensor)
            return (layer @ tensors[-1]).numpy()

    return scores


class App:
    """What ASGI wants: called once for each request, it receives the body and sends the answer."""

    def __init__(self, scores, width):
        self._scores, self._width = scores, width
        self._scores(np.zeros((1, width), np.float32))  # the first one is slow

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            status, answer = self._answer(scope, await self._body(receive))
            head = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
            await send({"type": "http.response.start", "status": status, "headers": head})
            await send({"type": "http.response.body", "body": answer})

    async def _body(self, receive):
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        return body

    def _answer(self, scope, body):
        if scope["path"] == "/health":
            return 200, b"{}"
        if scope["path"] != "/predict":
            return 404, b'{"error": "GET /predict?seed=0, or POST /predict"}'
        try:
            if scope["method"] == "POST":
                values = np.asarray(json.loads(body)["values"], np.float32).reshape(1, self._width)
            else:
                seed = int(parse_qs(scope["query_string"].decode()).get("seed", ["0"])[0])
                values = np.random.default_rng(seed).standard_normal((1, self._width), np.float32)
        except (KeyError, TypeError, ValueError) as problem:
            return 400, json.dumps({"error": str(problem)}).encode()
        scores = self._scores(values)[0]
        told = {"class": int(scores.argmax()), "scores": [round(float(each), 4) for each in scores]}
        return 200, json.dumps(told).encode()


def main():
    asked = argparse.ArgumentParser(description="Serve a small network.")
    asked.add_argument("--backend", choices=["onnx", "torch"], default="onnx")
    asked.add_argument("--port", type=int, default=8000)
    asked.add_argument("--threads", type=int, default=0, help="of the library; 0: what it takes by itself")
    asked.add_argument("--width", type=int, default=512)
    asked.add_argument("--layers", type=int, default=4)
    wanted = asked.parse_args()
    make = {"onnx": by_onnx, "torch": by_torch}[wanted.backend]
    app = App(make(matrices(wanted.width, wanted.layers), wanted.threads), wanted.width)
    uvicorn.run(app, host="127.0.0.1", port=wanted.port, log_level="warning", lifespan="off")


if __name__ == "__main__":
    main()
