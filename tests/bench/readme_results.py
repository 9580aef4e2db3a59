#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the README's section of results from tests/bench/results/*.json; `--check` compares only.

A table appears when a committed result has its rows, with machine, commit, date and the command that
repeats it. Nothing in that section is typed by hand.
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import mooncake_ratio  # noqa: E402
from readme_headline import headline  # noqa: E402
from readme_rows import (  # noqa: E402
    by_case, cases_with, load, number, of_bench, origin, percent,
    short_machine, table)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- results: made by tests/bench/readme_results.py -->", "<!-- results end -->"
PLAN_LIMIT = 0.15


def section(title, document, head, rows):
    """One result's table under a title; results of one title open together, with a click."""
    if not rows:
        return []
    return [(title, short_machine(document), [origin(document), "", *table(head, rows), ""])]


def opened_by_click(sections):
    """Each title's line says how many tables are behind it, and of which machines."""
    titles = {}
    for title, machine, lines in sections:
        titles.setdefault(title, []).append((machine, lines))
    markup = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "`": None})
    out = []
    for title, results in titles.items():
        machines = [machine for machine, _ in results if machine is not None]
        where = ", ".join(dict.fromkeys(machines))
        count = f"{len(machines)} tables, " if len(machines) > 1 else ""
        line = f"<b>{title.translate(markup)}</b> ({count}{where.translate(markup)})"
        out += ["<details>", f"<summary>{line}</summary>", ""]
        for _, lines in results:
            out += lines
        out += ["</details>", ""]
    return out


def against_floor(documents, metric, title, benches=("latency", "latency-cpu")):
    out = []
    for document in of_bench(documents, *benches):
        rows = [[row["case"], f'{number(row["value"])} +- {number(row["spread"])}',
                 number(row["ceiling"]), percent(row["share"])]
                for row in document["rows"] if row["metric"] == metric and row["ceiling"]]
        out += section(title, document, ["case", "ms", "floor ms", "of the floor's speed"], rows)
    return out


def decode_kernels(documents):
    out = []
    for document in of_bench(documents, "decode_kernels"):
        rows = [[row["case"].replace(" chain", ""), number(row["value"]), number(row["ceiling"]),
                 percent(row["share"])] for row in document["rows"]
                if re.search(r"batch(1|32) ctx128 chain (auto|cublaslt)$", row["case"])
                and row["metric"] == "gb_per_s"]
        out += section("Decode kernels of one rank's shard, no communication", document,
                       ["case", "GB/s", "read bandwidth", "share"], rows)
    return out


def decode_attention(documents):
    """A layer with attention less one without, and the bandwidth of attention alone."""
    out = []
    for document in of_bench(documents, "decode_attention"):
        rows = [[case.removesuffix(" attend"), number(found["added_us"]["value"]),
                 number(found["gb_per_s"]["value"]), percent(found["gb_per_s"]["share"])]
                for case, found in by_case(document).items()]
        out += section("Decode attention: what it adds to a layer, and its bandwidth", document,
                       ["case", "us a layer", "GB/s alone", "of read bandwidth"], rows)
    return out


def mixed(documents):
    out = []
    for document in of_bench(documents, "mixed"):
        rows = [[case, *(number(found[metric]["value"]) for metric in
                         ("tpot_p99_before_ms", "tpot_p99_during_ms", "tpot_ratio",
                          "ttft_alone_ms", "ttft_mixed_ms", "ttft_ratio"))]
                for case, found in by_case(document).items()]
        out += section("A long prompt beside answers that are being written", document,
                       ["case", "p99 TPOT ms before", "beside it", "ratio", "TTFT ms alone",
                        "beside answers", "ratio"], rows)
    return out


def prefill_attention(documents):
    out = []
    for document in of_bench(documents, "prefill_attention"):
        rates = {(row["case"], row["metric"]): row["value"] for row in document["rows"]}
        rows = [[case.removeprefix("prefill attention "), number(value),
                 number(rates[case, "cudnn_attention_rate"])]
                for (case, metric), value in rates.items()
                if metric == "attention_rate" and (case, "cudnn_attention_rate") in rates]
        out += section("Prefill attention, TFLOP/s, beside cuDNN through PyTorch in the same run "
                       "(`python3 tests/bench/cudnn_attention.py`)", document,
                       ["case", "Tandem", "cuDNN"], rows)
    return out


DOMAINS = "Memory synchronization domains on and off"
DOMAINS_FOUND = """\
Rows with less than 5 % between alone and same domain are left out. What the table shows: stores to
host memory cost a kernel boundary most, loads from it next to nothing. While the stores stay below
what the link takes (x1), another domain removes about half of the little loss there is, after 4 MiB
of own stores too. Once they fill it (x8), everything that has stores of its own to complete stands
behind them in the memory system, whatever its domain: a kernel that wrote little is freed, one that
ends with 4 MiB dirty is not, and a system-scope fence never is."""
DOMAINS_FOUND_PEERS = """\
Rows with less than 5 % between alone and same domain are left out. Communication over NVLink costs
kernel boundaries most: beside stores to a peer at the link's rate (x24), or a large all-reduce of
NCCL, every boundary waits until they are through, and a domain of their own removes 57 to 85 % of
that. A system-scope fence, and matmuls that lose SMs or memory bandwidth to it, gain nothing."""


def domains(documents):
    out = []
    for document in of_bench(documents, "domains"):
        rows = [[case, found["idle"]["unit"],
                 *(number(found[name]["value"]) for name in
                   ("idle", "same_domain", "separate_domains")),
                 percent(found["removed"]["value"] if "removed" in found else None)]
                for case, found in cases_with(document, "separate_domains")
                if found["same_domain"]["value"] > 1.05 * found["idle"]["value"]]
        out += section(DOMAINS, document,
                       ["work", "unit", "alone", "same domain", "separate", "of the loss removed"],
                       rows)
        beside_peers = any("beside peer" in row[0] for row in rows)
        found = DOMAINS_FOUND_PEERS if beside_peers else DOMAINS_FOUND
        out += [(DOMAINS, None, [found, ""])] if rows else []
    return out


def separation(documents):
    out = []
    for document in of_bench(documents, "latency"):
        cases = by_case(document)
        rows = [[case, *(number(cases[f"{case} {which}"]["ttft_ms"]["value"])
                         for which in ("same domain", "separate domains")),
                 f'{found["saved_by_separation_ms"]["value"]:.2f} +- '
                 f'{found["saved_by_separation_ms"]["spread"]:.2f}']
                for case, found in cases_with(document, "saved_by_separation_ms")]
        out += section("What separate domains are worth in a whole prefill, ms", document,
                       ["case", "same domain", "separate", "saved"], rows)
    return out


def serving(documents):
    out = []
    for document in of_bench(documents, "throughput"):
        rows = [[row["case"], row["metric"].replace("_", " "), row["statistic"],
                 f'{number(row["value"])} {row["unit"]}']
                for row in document["rows"]
                if row["metric"] in ("output_throughput", "output_tokens_per_s_per_gpu",
                                     "output_tokens_per_s_per_user", "device_idle_bound_us")]
        out += section("Many requests at once", document, ["case", "what", "statistic", "value"], rows)
    return out


REUSE = "What prefix reuse is worth in serving: Mooncake's conversations at rates that hold p99 TTFT " \
    "5 s and TPOT 50 ms"
REUSE_FOUND = """\
100 requests of the middle of the trace are played, of a tenth of its conversations with all their
turns: what one of ten servers gets when a router sends every conversation to one server. Of all
prompt tokens of the trace 38 % repeat what came before; the KV cache of one H200 (0.8 million
tokens) still knows as many of a tenth of the conversations, and 8 % of all of them. The rates in
between were not tried."""


def prefix_reuse(documents):
    out = []
    for document in of_bench(documents, "mooncake_reuse"):
        _, cases, _, _ = mooncake_ratio.summary(document)
        rows = [mooncake_ratio.cells(case, values) for case, values in cases.items()
                if ("objectives_held", "mean") in values]
        rows.sort(key=lambda row: (row[-1] != "held", row[0]))
        bounds = {row["metric"]: row["value"] for row in document["rows"] if row["unit"] == "ratio"}
        words = [f"{word} {bounds[name]:.2f} times" for word, name in
                 (("at least", "rate_raised_at_least"), ("less than", "rate_raised_at_most"))
                 if name in bounds]
        found = f'Reuse raises the rate {" and ".join(words)}.\n' if words else ""
        out += section(REUSE, document, mooncake_ratio.HEAD, rows)
        out += [(REUSE, None, [found + REUSE_FOUND, ""])] if rows else []
    return out


def llama_cpp(documents):
    out = []
    for document in of_bench(documents, "llama_cpp-cpu"):
        cases = {}
        for row in document["rows"]:
            match = re.fullmatch(r"(\S+) (tandem dense|tandem|llama\.cpp) (.*)", row["case"])
            model, runtime, length = match.groups()
            cases.setdefault(f"{model} {length}", {})[runtime] = row
        rows = [[case, *(f'{number(found[name]["value"])} +- {number(found[name]["spread"])}'
                         for name in ("tandem", "tandem dense", "llama.cpp"))]
                for case, found in cases.items()]
        out += section(f'Tokens/s of CPU threads beside llama.cpp (llama-cpp-python '
                       f'{document["work"]["llama_cpp_python"]}) on the same file, in turns', document,
                       ["case", "Tandem", "Tandem, `--weight-format dense`", "llama.cpp"], rows)
    return out


def all_reduce(documents):
    out = []
    for document in of_bench(documents, "all_reduce"):
        cells, ways = {}, []
        for row in document["rows"]:
            match = re.fullmatch(r"all-reduce bf16 (n\d+) (\S+) graph (\S+)", row["case"])
            if not match or row["metric"] != "latency_us" or row["statistic"] != "median":
                continue
            ranks, way, size = match.groups()
            cells.setdefault((ranks, size), {})[way] = number(row["value"])
            ways += [way] if way not in ways else []
        rows = [[f"{ranks} {size}", *(found.get(way, "") for way in ways)]
                for (ranks, size), found in cells.items()]
        out += section("All-reduce of bf16 in a graph, us", document, ["ranks, size", *ways], rows)
    return out


def seam(documents):
    out = []
    for document in of_bench(documents, "all_reduce"):
        cells = {}
        for row in document["rows"]:
            match = re.fullmatch(r"reduce-add-norm bf16 (n\d+) (\S+) graph (\d+)x(\d+)", row["case"])
            if match and row["statistic"] == "median":
                ranks, way, rows, hidden = match.groups()
                cells.setdefault((ranks, int(rows), int(hidden)), {})[way] = row["value"]
        rows = [[f"{ranks} {count} x {hidden}", str(2 * count * hidden >> 10),
                 *(number(found[way]) if way in found else "" for way in ("push", "pull", "nccl")),
                 f'{found["nccl"] / min(found[way] for way in found if way != "nccl"):.2f}']
                for (ranks, count, hidden), found in cells.items()
                if "nccl" in found and len(found) > 1]
        out += section("All-reduce, residual and norm of decode in a graph, us: one kernel, or NCCL's "
                       "and a norm's", document,
                       ["ranks, rows x width", "KiB", "push", "pull", "NCCL", "times as fast"], rows)
    return out


def overlap(documents):
    out = []
    for document in of_bench(documents, "overlap", "overlap-cpu"):
        rows = [[case, *(number(found[f"layer_{name}us"]["value"]) for name in
                         ("", "compute_", "communication_", "exposed_")),
                 percent(found["layer_exposed_us"]["value"] / found["layer_us"]["value"])]
                for case, found in cases_with(document, "layer_exposed_us")]
        out += section("Communication under computation in prefill, us a layer", document,
                       ["case", "layer", "computation", "communication", "exposed", "share"], rows)
    return out


def kv_growth(documents):
    out = []
    for document in of_bench(documents, "memory"):
        rows = [[row["case"], row["metric"].removesuffix("_us").replace("_", " "), row["statistic"],
                 number(row["value"])] for row in document["rows"] if row["unit"] == "us"]
        out += section("Growing the KV cache under a running step, us", document,
                       ["case", "what", "statistic", "us"], rows)
    return out


def scaling(documents):
    out = []
    for document in of_bench(documents, "scaling", "scaling-cpu"):
        cases = by_case(document)
        rows = []
        for case, found in cases.items():
            latency = found.get("tpot_ms") or found.get("ttft_ms")
            if latency is None:  # where the steps went
                continue
            rows.append([case, f'{number(latency["value"])} +- {number(latency["spread"])}',
                         number(found["tokens_per_s"]["value"]),
                         number(found["speed_up"]["value"]), percent(found["efficiency"]["value"])])
        out += section("Scaling over ranks", document,
                       ["case", "ms", "tokens/s", "speed-up", "efficiency"], rows)
        steps = [[case, number(found["step_us"]["value"]),
                  percent(found["exposed_communication_us"]["value"] / found["step_us"]["value"])]
                 for case, found in cases.items() if "step_us" in found]
        out += section("Where the steps of that scaling went", document,
                       ["steps", "us", "exposed communication"], steps)
    return out


def plan(documents):
    out = []
    results = [result for result in of_bench(documents, "latency", "latency-cpu")
               if "--decode-matmul" not in result["command"]]
    for document in of_bench(documents, "plan"):
        predicted = {(row["case"], row["metric"]): row["value"] for row in document["rows"]}
        rows = []
        for result in results:
            if result["machine"] != document["machine"]:
                continue
            for row in result["rows"]:
                value = predicted.get((row["case"], row["metric"]))
                if value is None:
                    continue
                error = value / row["value"] - 1
                rows.append([row["case"], row["metric"], number(value), number(row["value"]),
                             f"{100 * error:+.1f} %" + (" (!)" if abs(error) > PLAN_LIMIT else "")])
        out += section(f"`tandem plan` against those results (limit {percent(PLAN_LIMIT)})",
                       document, ["case", "metric", "predicted ms", "measured ms", "error"], rows)
    return out


def generate(documents):
    sections = [*against_floor(documents, "tpot_ms", "Decode against the floor of memory bandwidth"),
                *against_floor(documents, "tpot_ms",
                               "One rank's shard alone, communication left out", ("shard",)),
                *against_floor(documents, "ttft_ms", "Prefill against the floor of arithmetic"),
                *decode_kernels(documents), *decode_attention(documents),
                *prefill_attention(documents), *mixed(documents), *all_reduce(documents),
                *seam(documents), *overlap(documents), *domains(documents), *separation(documents),
                *kv_growth(documents), *serving(documents), *prefix_reuse(documents), *llama_cpp(documents),
                *scaling(documents), *plan(documents)]
    return "\n".join([BEGIN, "", *headline(documents), *opened_by_click(sections), END])


def replaced(readme, text):
    begin, end = readme.index(BEGIN), readme.index(END) + len(END)
    return readme[:begin] + text + readme[end:]


def main():
    path = ROOT / "README.md"
    before = path.read_text()
    after = replaced(before, generate(load(ROOT / "tests/bench/results")))
    if sys.argv[1:] == ["--check"]:
        if before != after:
            print("README.md is not what the results say; run python3 tests/bench/readme_results.py")
        return before != after
    path.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
