#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rate of cuDNN's attention through PyTorch at the shapes of prefill_attention_bench, one JSON row
a line. Run it on the same machine right before or after that program: the ratio of the two is what
counts. FLOPs are counted as there: half of the causal square."""
import json
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

CASES = [(32, 8, 128, 2048), (32, 8, 128, 8192), (32, 8, 128, 32768), (32, 8, 64, 2048),
         (32, 8, 64, 8192)]
RUNS = 15


def timed(call, calls):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / calls


def attention(q_heads, kv_heads, head_dim, tokens):
    """A call that runs once, grouped when this PyTorch lets cuDNN do that, else with repeated heads."""
    q = torch.randn(1, q_heads, tokens, head_dim, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(1, kv_heads, tokens, head_dim, device="cuda", dtype=torch.bfloat16)
            for _ in range(2))
    try:
        call = lambda: scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        call()
        return call, "grouped"
    except RuntimeError:
        k, v = (x.repeat_interleave(q_heads // kv_heads, dim=1) for x in (k, v))
        return lambda: scaled_dot_product_attention(q, k, v, is_causal=True), "repeated"


def main():
    print(f"torch {torch.__version__} cudnn {torch.backends.cudnn.version()} "
          f"{torch.cuda.get_device_name()}", file=sys.stderr)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), torch.inference_mode():
        for q_heads, kv_heads, head_dim, tokens in CASES:
            call, heads = attention(q_heads, kv_heads, head_dim, tokens)
            calls = max(1, min(20, int(20.0 / max(timed(call, 3), 0.01))))
            flops = 2 * tokens * tokens * q_heads * head_dim
            rates = sorted(flops / timed(call, calls) * 1e-9 for _ in range(RUNS))
            print(json.dumps({
                "case": f"prefill attention bf16 {q_heads}/{kv_heads} d{head_dim} causal {tokens}",
                "metric": "cudnn_attention_rate", "unit": "TFLOP/s", "statistic": "median",
                "runs": RUNS, "value": round(statistics.median(rates), 1),
                "spread": round((rates[RUNS * 3 // 4] - rates[RUNS // 4]) / 2, 1),
                "heads": heads}), flush=True)


if __name__ == "__main__":
    main()
