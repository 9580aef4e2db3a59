#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode and prefill of a GGUF file on CPU threads, Tandem and llama.cpp in turns:

    pip install llama-cpp-python
    python3 tests/bench/compare_llama_cpp.py FILE.gguf --threads 1 --json RESULT.json

One rank and llama.cpp have the same number of threads, the same lengths and one sequence; each
round measures all, so that a host's other work meets all alike. llama.cpp multiplies the file's
few bits with activations rounded to 8 bits, Tandem with activations of 16 bits; `dense` is Tandem
with the weights made bfloat16. Medians over the rounds, `spread` is half of what lies between the
quartiles."""
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


class Tandem:
    def __init__(self, arguments, weight_format):
        self.command = [arguments.tandem, "bench", "latency", "-m", arguments.model, "--device", "cpu",
                        "--threads", str(arguments.threads), "--weight-format", weight_format,
                        "--input-len", str(CONTEXT), "--output-len", str(ANSWER),
                        "--prefill-len", str(PREFILL), "--num-iters", "3"]

    def measure(self):
        """Milliseconds of a token of the answer and of a prompt."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "result.json"
            subprocess.run([*self.command, "--json", path], check=True, capture_output=True)
            self.document = json.loads(path.read_text())
        found = {row["metric"]: row["value"] for row in self.document["rows"]}
        return found["tpot_ms"], found["ttft_ms"]


class LlamaCpp:
    def __init__(self, arguments):
        self.model = llama_cpp.Llama(arguments.model, n_ctx=1024, n_batch=PREFILL, n_ubatch=PREFILL,
                                     n_threads=arguments.threads, n_threads_batch=arguments.threads,
                                     verbose=False)
        self.prompt = [1000 + i for i in range(PREFILL)]

    def milliseconds(self, tokens):
        start = time.perf_counter()
        self.model.eval(tokens)
        return 1000 * (time.perf_counter() - start)

    def measure(self):
        decode, prefill = [], []
        for _ in range(3):
            self.model.reset()
            self.milliseconds(self.prompt[:CONTEXT])
            decode.append(sum(self.milliseconds([1000 + i]) for i in range(ANSWER)) / ANSWER)
            self.model.reset()
            prefill.append(self.milliseconds(self.prompt))
        return statistics.median(decode), statistics.median(prefill)


def row(model, runtime, length, tokens, times):
    rates = sorted(1000 * tokens / time for time in times)
    low, _, high = statistics.quantiles(rates, n=4)
    return {"case": f"{model} {runtime} batch1 {length}", "metric": "tokens_per_s",
            "unit": "tokens/s", "statistic": "median", "runs": len(rates),
            "value": round(statistics.median(rates), 2), "spread": round((high - low) / 2, 2),
            "ceiling": 0, "share": None}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tandem", default=str(ROOT / "build" / "tandem"))
    parser.add_argument("--name", help="the model's name in the cases")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error("--rounds must be at least 2")
    runtimes = {"tandem": Tandem(arguments, "auto"), "tandem dense": Tandem(arguments, "dense"),
                "llama.cpp": LlamaCpp(arguments)}
    times = {name: [] for name in runtimes}
    for _ in range(arguments.rounds):
        for name, runtime in runtimes.items():
            times[name].append(runtime.measure())
    model = arguments.name or pathlib.Path(arguments.model).stem
    rows = [row(model, name, length, tokens, [time[which] for time in times[name]])
            for which, (length, tokens) in enumerate(((f"ctx{CONTEXT}", 1),
                                                      (f"prefill{PREFILL}", PREFILL)))
            for name in runtimes]
    for item in rows:
        print(f'{item["case"]:50} {item["value"]:8.1f} +- {item["spread"]:.1f} tokens/s')
    if arguments.json:
        document = runtimes["tandem"].document
        result = {"bench": "llama_cpp-cpu", "machine": document["machine"],
                  "commit": document["commit"], "date": document["date"],
                  "command": f"python3 tests/bench/compare_llama_cpp.py "
                             f"{pathlib.Path(arguments.model).name} --threads {arguments.threads} "
                             f"--rounds {arguments.rounds} --name {model}",
                  "work": {"threads": arguments.threads,
                           "llama_cpp_python": llama_cpp.__version__,
                           "llama_cpp": llama_cpp.llama_print_system_info().decode().strip()},
                  "rows": rows}
        pathlib.Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
