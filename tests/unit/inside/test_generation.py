"""The built-in text generation, run as a trial runs it but shorter."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from inference_jobs import outcome_and_marks, spans_ns
from tare.figures.steps import step_metrics, steps_from
from tare.parts.protocols import Mark
from tare_inside.workloads.programs import generate


def generated(folder: Path, **changes: Any) -> tuple[dict[str, Any], list[Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    job = {
        "size": "tiny", "scale": 1.0, "weights": None, "batch": 2, "prompt": 6, "output": 5, "requests": 3,
        "warm_up": 2, "decode": "greedy", "top_k": 20, "temperature": 1.0, "backend": "eager", "precision": "fp32",
        "device": "cpu", "threads": 1, "seed": 3, "marks": str(folder / "marks.bin"),
    } | changes  # fmt: skip
    return outcome_and_marks(generate.run, job)


def test_the_first_token_and_every_further_one_are_marked(tmp_path: Path) -> None:
    outcome, loaded = generated(tmp_path)

    counted = Counter(name for _, name, edge, step in loaded if edge == "end" and step >= 0)
    assert counted == {"first_token": 3, "compute": 12, "step": 12}
    assert sorted(step for _, name, edge, step in loaded if (name, edge) == ("first_token", "end")) == [0, 4, 8]
    spans = spans_ns(loaded)
    assert all(spans["compute", step] == spans["step", step] for step in range(12))
    busy_s = outcome["metrics"]["requests_per_s"] ** -1 * 3
    assert outcome["metrics"]["tokens_per_s"] == pytest.approx(3 * 2 * 5 / busy_s)
    assert outcome["steps"] == 12
    assert 1 <= outcome["warm_up"] <= 2
    at_ns = {(name, edge): t_ns for t_ns, name, edge, _ in reversed(loaded)}
    order = [("model_load", "end"), ("settling", "begin"), ("settling", "end"), ("ready", "point"), ("step", "begin")]
    assert [at_ns[each] for each in order] == sorted(at_ns[each] for each in order)


def test_figures_of_tokens_come_by_the_marks(tmp_path: Path) -> None:
    _, loaded = generated(tmp_path, output=60)
    steps = steps_from(Mark(*row) for row in loaded)
    assert steps is not None
    found = step_metrics(steps)

    spans = spans_ns(loaded)
    assert found["first_token_mean_s"] == pytest.approx((spans["first_token", 59] + spans["first_token", 118]) / 2e9)
    assert {"step_s", "step_mean_s", "step_p90_s", "first_token_s"} <= found.keys()


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # a CPU without bf16 computes it by other means
def test_the_cache_takes_what_keys_and_values_of_all_tokens_take(tmp_path: Path) -> None:
    whole, _ = generated(tmp_path / "fp32")
    half, _ = generated(tmp_path / "bf16", precision="bf16")

    assert whole["metrics"]["kv_cache_bytes"] == 2 * 2 * 2 * 128 * (6 + 5) * 4  # both, layers, batch, width, tokens
    assert half["metrics"]["kv_cache_bytes"] == whole["metrics"]["kv_cache_bytes"] / 2
    assert whole["metrics"]["peak_bytes"] > 10e6


def test_the_same_seed_gives_the_same_tokens_however_long_the_warm_up(tmp_path: Path) -> None:
    cases: dict[str, dict[str, Any]] = {
        "greedy": {}, "again": {"warm_up": 0}, "other": {"seed": 4},
        "sample": {"decode": "sample"}, "sample-again": {"decode": "sample", "warm_up": 0},
        "sample-few": {"decode": "sample", "top_k": 1},
    }  # fmt: skip
    digests = {name: generated(tmp_path / name, **changes)[0]["answers_digest"] for name, changes in cases.items()}

    assert digests["greedy"] == digests["again"] == digests["sample-few"]
    assert digests["sample"] == digests["sample-again"]
    assert len(set(digests.values())) == 3


def test_warm_up_lasts_until_a_request_takes_as_long_as_the_one_before(tmp_path: Path) -> None:
    class Settles:
        def request(self, number: int) -> tuple[None, int, int]:
            return None, 0, (8000, 4000, 2000, 1000, 990)[number]

    assert generate.warmed_up(Settles(), 5) == 5
    assert generate.warmed_up(Settles(), 3) == 3  # a limit
    assert generate.warmed_up(Settles(), 0) == 0


def test_what_is_generated_is_what_the_network_without_a_cache_finds(tmp_path: Path) -> None:
    outcome, _ = generated(tmp_path, batch=1, output=12)
    job = {"size": "tiny", "scale": 1.0, "device": "cpu", "precision": "fp32", "prompt": 6, "output": 12, "seed": 3}
    network = generate.network_of(job)
    words = torch.Generator()
    words.manual_seed(0)
    text = torch.randint(1024, (3, 1, 6), generator=words)[0]
    with torch.no_grad():
        for _ in range(12):
            text = torch.cat((text, network(text)[:, -1].argmax(-1, keepdim=True)), 1)
    assert outcome["answer"] == repr(text[0, 6:].tolist())
    assert len(set(text[0, 6:].tolist())) > 3  # not one token again and again, of which a digest would say nothing


def test_int8_runs_where_the_cpu_has_an_engine_and_is_refused_in_a_sentence_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if generate.obstacle("cpu", "int8") is None:
        outcome, _ = generated(tmp_path / "int8", precision="int8")
        assert outcome["steps"] == 12
    monkeypatch.setattr(generate, "_engine", lambda: None)
    with pytest.raises(ValueError, match="no quantised engine for this CPU"):
        generated(tmp_path / "none", precision="int8")
    assert "for CPUs" in str(generate.obstacle("cuda", "int8"))


def test_more_tokens_than_the_network_has_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="room for 1024 tokens and `prompt` \\+ `output` are 1027"):
        generated(tmp_path, prompt=1022)


def test_weights_of_a_folder_are_read_through_transformers(tmp_path: Path) -> None:
    from test_networks_as_others_have_them import transformers_module

    transformers = transformers_module("gpt2")
    config = transformers.GPT2Config(
        vocab_size=64, n_positions=32, n_embd=64, n_head=1, n_layer=1, bos_token_id=0, eos_token_id=0
    )
    torch.manual_seed(5)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    theirs.save_pretrained(tmp_path / "weights")
    outcome, _ = generated(tmp_path, weights=str(tmp_path / "weights"), batch=1)

    words = torch.Generator()
    words.manual_seed(0)
    text = torch.randint(64, (3, 1, 6), generator=words)[0]
    with torch.no_grad():
        for _ in range(5):
            text = torch.cat((text, theirs(text).logits[:, -1].argmax(-1, keepdim=True)), 1)
    assert outcome["answer"] == repr(text[0, 6:].tolist())
