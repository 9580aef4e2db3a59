# SPDX-License-Identifier: Apache-2.0
"""The first table of the README's results."""
from readme_rows import by_case, number, of_bench, percent, plural, short_machine, table


def headline(documents):
    """The few numbers that a reader asks for first, each with what it is measured against."""
    rows = []

    def find(benches, case, metric):
        for document in of_bench(documents, *benches):
            if "--decode-matmul" in document["command"]:
                continue
            for row in document["rows"]:
                if row["case"] == case and row["metric"] == metric:
                    yield document, row

    def against(what, case, metric, benches=("latency",)):
        for document, row in find(benches, case, metric):
            rows.append([what, short_machine(document), f'{number(row["value"])} ms',
                         f'{number(row["ceiling"])} ms floor: {percent(row["share"])} of its speed'])
            return

    against("Llama-3-8B, a token of one user", "llama-3-8b bf16 tp1 batch1 ctx128", "tpot_ms")
    against("the same", "llama-3-8b bf16 tp2 batch1 ctx128", "tpot_ms")
    against("Llama-3-70B, a token of one user", "llama-3-70b bf16 tp2 batch1 ctx128", "tpot_ms")
    against("Llama-3-8B, a prompt of 8192", "llama-3-8b bf16 tp1 batch1 prefill8192", "ttft_ms")
    against("the same", "llama-3-8b bf16 tp2 batch1 prefill8192", "ttft_ms")
    for document, row in find(("throughput",),
                              "llama-3-8b bf16 tp1 c256 random in1024 out1024 steady",
                              "output_tokens_per_s_per_gpu"):
        user = by_case(document)[row["case"]].get("output_tokens_per_s_per_user")
        rows.append(["Llama-3-8B, 256 at once, 1024 in and out", short_machine(document),
                     f'{row["value"]:,.0f} tokens/s',
                     f'{number(user["value"])} tokens/s for each' if user else ""])
        break
    for document, row in find(("mooncake_reuse",), "reuse-on", "highest_rate_held"):
        values = {(other["case"], other["metric"]): other["value"] for other in document["rows"]}
        rows.append(["Llama-3-8B, Mooncake's conversations within p99 TTFT 5 s, TPOT 50 ms",
                     short_machine(document), f'{number(row["value"])} requests/s',
                     f'without prefix reuse {number(values["reuse-off", "highest_rate_held"])} hold, '
                     f'{number(values["reuse-off", "lowest_rate_missed"])} do not'])
    for document, row in find(("prefill_attention",),
                              "prefill attention bf16 32/8 d128 causal 8192", "attention_rate"):
        cudnn = by_case(document)[row["case"]]["cudnn_attention_rate"]["value"]
        rows.append(["attention of a prompt of 8192", short_machine(document),
                     f'{number(row["value"])} TFLOP/s', f"cuDNN in the same run: {number(cudnn)}"])
    for document, row in find(("all_reduce",), "reduce-add-norm bf16 n2 push graph 1x4096",
                              "latency_us"):
        if row["statistic"] == "median":
            nccl = [other["value"] for other in document["rows"] if other["statistic"] == "median"
                    and other["case"] == row["case"].replace("push", "nccl")]
            rows.append(["sum over 2 ranks, residual and norm, 8 KiB", short_machine(document),
                         f'{number(row["value"])} us',
                         f"NCCL and a norm in the same run: {number(nccl[0])}"])
    for document, row in find(("overlap",), "llama-3-8b bf16 tp2 prefill8192 overlap on",
                              "layer_exposed_us"):
        layer = by_case(document)[row["case"]]["layer_us"]["value"]
        rows.append(["communication that a prompt of 8192 waits for", short_machine(document),
                     percent(row["value"] / layer) + " of a layer", ""])
    for beside, what in (("NCCL all-reduce of 64 MiB", "an all-reduce of NCCL"),
                         ("pinned host stores x8", "stores to the host")):
        for document, row in find(("domains",), f"tiny kernels beside {beside}",
                                  "separate_domains"):
            found = by_case(document)[row["case"]]
            rows.append([f"small kernels beside {what}, each", short_machine(document),
                         f'{number(row["value"])} us in another domain',
                         f'same domain: {number(found["same_domain"]["value"])}; alone: '
                         f'{number(found["idle"]["value"])}'])
    for document, row in find(("memory",), "growth segment 64MiB", "step_growing_us"):
        if row["statistic"] == "median":
            alone = [other["value"] for other in document["rows"] if other["case"] == row["case"]
                     and (other["metric"], other["statistic"]) == ("step_alone_us", "median")]
            rows.append(["a step while the KV cache grows, 64 MiB at a time", short_machine(document),
                         f'{number(row["value"])} us', f"alone: {number(alone[0])}"])
    for document, row in find(("scaling",), "llama-3-8b bf16 tp2 batch1 prefill8192", "speed_up"):
        rows.append(["Llama-3-8B, a prompt of 8192 on two GPUs", short_machine(document),
                     f'{number(row["value"])} times as fast as on one', ""])
    for document, row in find(("llama_cpp-cpu",), "smollm2-135m tandem batch1 ctx128",
                              "tokens_per_s"):
        other = by_case(document)["smollm2-135m llama.cpp batch1 ctx128"]["tokens_per_s"]["value"]
        rows.append([f'SmolLM2-135M of 4 bits, {plural(document["work"]["threads"], "thread")}',
                     short_machine(document), f'{number(row["value"])} tokens/s',
                     f"llama.cpp in the same run: {number(other)}"])
    return table(["what", "where", "measured", "beside it"], rows) + [""] if rows else []
