#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode and prefill of a GGUF file on CPU threads, Tandem and llama.cpp in turns:

    pip install llama-cpp-python
    python3 tests/bench/compare_llama_cpp.py FILE.gguf [--threads 2] [--rounds 3] [--json RESULT]

Both run one rank with the same number of threads, the same prompt lengths and one sequence; medians
over the rounds, because a host's other work comes and goes. llama.cpp multiplies the file's
quantised weights with activations rounded to 8 bits; Tandem keeps the weights as bfloat16."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import llama_cpp

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTEXT, ANSWER, PREFILL = 128, 64, 512


def tandem(arguments):
    """Its document of results for one round."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "result.json"
        subprocess.run([arguments.tandem, "bench", "latency", "-m", arguments.model, "--device", "cpu",
                        "--threads", str(arguments.threads), "--input-len", str(CONTEXT),
                        "--output-len", str(ANSWER), "--prefill-len", str(PREFILL),
                        "--num-iters", "3", "--json", path], check=True, capture_output=True)
        return json.loads(path.read_text())


def tokens_of(document, metric):
    """Tokens per second of a row in milliseconds."""
    row = next(row for row in document["rows"] if row["metric"] == metric)
    return (1 if metric == "tpot_ms" else PREFILL) * 1000 / row["value"]


class LlamaCpp:
    def __init__(self, arguments):
        self.model = llama_cpp.Llama(arguments.model, n_ctx=1024, n_batch=PREFILL, n_ubatch=PREFILL,
                                     n_threads=arguments.threads, n_threads_batch=arguments.threads,
                                     verbose=False)
        self.prompt = [1000 + i for i in range(PREFILL)]

    def seconds(self, tokens):
        start = time.perf_counter()
        self.model.eval(tokens)
        return time.perf_counter() - start

    def rates(self):
        """Tokens per second of decode and of prefill, medians of three."""
        decode, prefill = [], []
        for _ in range(3):
            self.model.reset()
            self.seconds(self.prompt[:CONTEXT])
            decode.append(ANSWER / sum(self.seconds([1000 + i]) for i in range(ANSWER)))
            self.model.reset()
            prefill.append(PREFILL / self.seconds(self.prompt))
        return statistics.median(decode), statistics.median(prefill)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tandem", default=str(ROOT / "build" / "tandem"))
    parser.add_argument("--json")
    arguments = parser.parse_args()
    other = LlamaCpp(arguments)
    ours, theirs = {"decode": [], "prefill": []}, {"decode": [], "prefill": []}
    for _ in range(arguments.rounds):
        document = tandem(arguments)
        ours["decode"].append(tokens_of(document, "tpot_ms"))
        ours["prefill"].append(tokens_of(document, "ttft_ms"))
        for kind, rate in zip(("decode", "prefill"), other.rates()):
            theirs[kind].append(rate)
    rows = []
    for kind, length in (("decode", f"ctx{CONTEXT}"), ("prefill", f"prefill{PREFILL}")):
        for name, rates in (("tandem", ours[kind]), ("llama.cpp", theirs[kind])):
            value = statistics.median(rates)
            rows.append({"case": f"{pathlib.Path(arguments.model).stem} {name} batch1 {length}",
                         "metric": "tokens_per_s", "unit": "tokens/s", "statistic": "median",
                         "runs": len(rates), "value": round(value, 2),
                         "spread": round(statistics.pstdev(rates), 2), "ceiling": 0, "share": None})
            print(f"{kind:8} {name:10} {value:8.1f} tokens/s")
    result = {"bench": "compare_llama_cpp", "machine": document["machine"],
              "commit": document["commit"], "date": document["date"],
              "command": f"python3 tests/bench/compare_llama_cpp.py "
                         f"{pathlib.Path(arguments.model).name} --threads {arguments.threads}",
              "llama_cpp_python": llama_cpp.__version__, "rows": rows}
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
