"""Names of metrics as tools write them: which way each is better, and which of them no name settles."""

from __future__ import annotations

import pytest

from tare.analysis.directions import direction_of, kind_of
from tare.analysis.sentences import verdict_word
from tare.analysis.weighing import weigh_table
from tare.base.errors import StudyError
from tare.report.export import gate

HIGHER = """
train_samples_per_second train_steps_per_second eval_samples_per_second eval/samples_per_second eval_accuracy eval_f1
eval_rouge1 eval/rougeL train/train_tokens_per_second
result_samples_per_second qps_with_loadgen_overhead qps_without_loadgen_overhead Scheduled_samples_per_second
throughput/device/samples_per_sec val/acc val_acc_epoch val/top1 test/auroc recall@10 map_at_50 accuracy_at_epoch_5
request_throughput output_throughput total_token_throughput request_goodput output_tokens_per_second
avg_generation_throughput_toks_per_s tokens/s/gpu goodput_under_latency_slo throughput_at_p99_latency_100_ms
ops iops_mean read_iops bw_mb_s disk_mb_s gb_s mib_sec bytes_second tflops_s ops_s iops_s flops_s
host_to_device_gb_s mem_bandwidth_gb_s fps_min throughput_min accuracy_min ops_min end_to_end_throughput net_gbps
images/s/W samples_per_joule speedup_to_bare text_to_image_fps
f1_score val_f1_score accuracy_score auroc_score bleu_score rouge_score capacity_rps
"""
LOWER = """
train_runtime eval_runtime train_loss eval_loss train/loss perplexity train/ms train/step_time_s perf/ms_per_token
time_to_train time_to_accuracy hours_to_accuracy energy_to_accuracy epochs_to_accuracy steps_to_accuracy
kwh_until_accuracy 99.00_percentile_latency_ns mean_latency_ns time_per_output_token latency_at_100_qps
mean_ttft_ms p99_tpot_ms median_itl_ms time_to_first_token vllm:time_to_first_token_seconds
vllm:e2e_request_latency_seconds end_to_end_latency text_to_image_latency_ms
power.draw_[W] memory.used_[MiB] gpu.0.powerWatts gpu.0.memoryAllocatedBytes _runtime batch_time time/step
accuracy_drop accuracy_gap fps_drop throughput_regression slowdown generalization_gap latency_ms_min memory_gb_min
min stddev fps_std lat_ns clat_p99_us host_to_device_s wait_for_gpu_s loop_for_ms peak_rss_kb max_memory_allocated_gb
tokens_latency_s ops_time_ms drop_rate
cycle_time_s cycle_time_ms cycle_time_p99 scale_time_ms gc_free_ms energy_per_cycle score_time
"""
UNSETTLED = """
throughput_gb bandwidth_mb speed_ms accuracy_s fps_s memory_gb_s tokens_s images_min gb_min p99_at_qps_100
tokens_at_100_w grad_norm learning_rate utilization.gpu clocks.sm temperature.gpu max_concurrency score user mean
free_memory available_memory mem_free_mb instructions_per_cycle battery_life_h uptime_s loss_scale pass@1 temperature
availability time_left_s time_scale battery_capacity_wh
"""


@pytest.mark.parametrize(("names", "rises"), [(HIGHER, True), (LOWER, False)])
def test_names_of_the_field_are_read_as_they_are_meant(names, rises):
    found = {name: direction_of(name.replace("_[", " [")) for name in names.split()}
    assert {name: str(each) for name, each in found.items() if (each.rises, each.source) != (rises, "name")} == {}


def test_what_no_name_settles_is_a_guess():
    assert [name for name in UNSETTLED.split() if direction_of(name).settled] == []


def test_what_is_not_settled_is_told_without_a_way_that_is_better():
    assert str(direction_of("score")).startswith("its name does not show which way is better (--higher-is-better")
    assert str(direction_of("steps_at_once")).startswith("more of it is neither better nor worse (")


@pytest.mark.parametrize("metric", ["score", "pass@1", "free_memory", "temperature", "battery_life_h"])
def test_a_difference_of_what_is_not_settled_is_higher_or_lower_and_not_worse(tmp_path, metric):
    rows = [f"{block},{side},{100 * (1.2 if side == 'docker' else 1) + block % 3}" for block in range(8)
            for side in (("bare", "docker"), ("docker", "bare"))[block % 2]]  # fmt: skip
    (tmp_path / "mine.csv").write_text("\n".join([f"run,platform,{metric}", *rows]))
    found = weigh_table(tmp_path / "mine.csv", by="platform", value=metric, block="run")
    assert verdict_word(found.comparisons[0]) == "higher"


@pytest.mark.parametrize(
    ("metric", "kind"),
    [("time_to_accuracy", "speed"), ("energy_to_accuracy", "amount"), ("latency_at_100_qps", "speed"),
     ("accuracy_at_100_ms", "quality"), ("accuracy_min", "quality"), ("disk_mb_s", "speed"), ("throughput_gb", "speed"),
     ("peak_gb", "amount"), ("eval/samples_per_second", "speed"), ("val/acc", "quality"), ("accuracy_drop", "amount"),
     ("val_accuracy_error", "quality"),
     ("slowdown", "speed")],
)  # fmt: skip
def test_the_word_of_a_verdict_fits_what_is_measured(metric, kind):
    assert kind_of(metric) == kind


@pytest.mark.parametrize(
    ("metric", "factor"),
    [("time_to_accuracy", 1.2), ("latency_at_100_qps", 1.2), ("accuracy_drop", 1.2), ("disk_mb_s", 0.8),
     ("fps_min", 0.8), ("eval/samples_per_second", 0.8), ("throughput_gb", None)],
)  # fmt: skip
def test_a_gate_fails_on_what_is_worse_and_is_refused_on_a_guess(tmp_path, metric, factor):
    rows = [f"{block},{side},{100 * (factor or 0.8 if side == 'docker' else 1) + block % 3}" for block in range(8)
            for side in (("bare", "docker"), ("docker", "bare"))[block % 2]]  # fmt: skip
    table = tmp_path / "mine.csv"
    table.write_text("\n".join([f"run,platform,{metric}", *rows]))
    found = weigh_table(table, by="platform", value=metric, block="run")

    if factor is None:
        with pytest.raises(StudyError, match="--higher-is-better"):
            gate(found, 0.05)
    else:
        assert [each.code for each in gate(found, 0.05).reasons] == ["gate.over"]


def _of_accuracy(path, ours, theirs, metric="accuracy", **asked):
    rows = [f"{block},{side},{(ours if side == 'docker' else theirs) - (block % 3) * theirs / 1000:.6g}"
            for block in range(8) for side in (("bare", "docker"), ("docker", "bare"))[block % 2]]  # fmt: skip
    (path / "mine.csv").write_text("\n".join([f"run,platform,{metric}", *rows]))
    return weigh_table(path / "mine.csv", by="platform", value=metric, block="run", **asked)


@pytest.mark.parametrize(("metric", "whole"), [("accuracy", 1), ("Top1", 100), ("f1", 1)])
def test_accuracy_is_judged_by_its_errors(tmp_path, metric, whole):
    found = _of_accuracy(tmp_path, 0.95 * whole, 0.99 * whole, metric)
    (one,) = found.comparisons

    assert (found.metric, one.metric, verdict_word(one)) == (f"{metric}_error", f"{metric}_error", "worse")
    assert one.effect == pytest.approx(3.7, abs=0.5) and "by its error rate" in found.notes[0]
    assert [each.code for each in gate(found, 0.05).reasons] == ["gate.over"]
    assert gate(_of_accuracy(tmp_path, 0.99 * whole, 0.99 * whole + 1e-5, metric), 0.05).passed


def test_of_no_error_at_all_no_ratio_is_made_and_the_user_may_turn_accuracy_round(tmp_path):
    assert _of_accuracy(tmp_path, 0.95, 1.0).metric == "accuracy"
    assert _of_accuracy(tmp_path, 0.95, 0.99, rises=False).metric == "accuracy"
