#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README's results are those that are committed, and every bench has its table."""
import pathlib
import subprocess
import sys
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[1] / "bench"
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))
import readme_results  # noqa: E402


def document(bench, *rows, gpu="H200", statistic="median"):
    keys = ("case", "metric", "value")
    more = {"unit": "us", "statistic": statistic, "spread": 0.1, "ceiling": 2.0, "share": 0.5}
    return {"bench": bench, "commit": "abc", "date": "2026-01-02", "command": f"run {bench}",
            "machine": {"gpu": gpu, "gpus": 2, "cuda": "13.0", "nccl": None, "cpu": "C"},
            "rows": [{**more, **dict(zip(keys, row))} for row in rows]}


class ReadmeResults(unittest.TestCase):
    def test_readme_is_what_the_results_say(self):
        run = subprocess.run([sys.executable, BENCH / "readme_results.py", "--check"], text=True,
                             capture_output=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_a_change_would_be_seen(self):
        readme = f"a\n{readme_results.BEGIN}\nold\n{readme_results.END}\nb\n"
        text = readme_results.generate({})
        self.assertEqual(readme_results.replaced(readme, text), f"a\n{text}\nb\n")

    def test_every_bench_has_its_table(self):
        text = readme_results.generate({
            "l": document("latency", ("m tp1 batch1 ctx8", "tpot_ms", 4.0),
                          ("m tp1 batch1 prefill8", "ttft_ms", 123.4)),
            "a": document("all_reduce", ("all-reduce bf16 n2 push graph 8KiB", "latency_us", 2.6),
                          ("all-reduce bf16 n2 nccl graph 8KiB", "latency_us", 6.5)),
            "d": document("domains", ("x beside y", "idle", 1.0), ("x beside y", "same_domain", 9.0),
                          ("x beside y", "separate_domains", 2.0), ("x beside y", "removed", 0.875)),
            "k": document("memory", ("segments of 64 MiB", "step_growing_us", 359.5)),
            "s": document("scaling", *(("m tp2 batch1 ctx8", metric, value) for metric, value in (
                ("tpot_ms", 2.5), ("tokens_per_s", 400.0), ("speed_up", 1.6), ("efficiency", 0.8)))),
            "m": document("mooncake_reuse", *(
                (case, metric, value) for case, metric, value in (
                    ("reuse-off rate2", "objectives_held", 1), ("reuse-off", "highest_rate_held", 2.0),
                    ("reuse-off", "lowest_rate_missed", 2.2), ("reuse-on rate3", "objectives_held", 1),
                    ("reuse-on", "highest_rate_held", 3.0))), statistic="mean"),
            "p": document("plan", ("m tp1 batch1 ctx8", "tpot_ms", 5.0)),
            "c": {**document("llama_cpp-cpu", *((f"m {name} batch1 ctx8", "tokens_per_s", value)
                                                for name, value in (("tandem", 90.0),
                                                                    ("tandem dense", 50.0),
                                                                    ("llama.cpp", 40.0)))),
                  "work": {"threads": 1, "llama_cpp_python": "0.3"}},
        })
        for row in ("| m tp1 batch1 ctx8 | 4.00 +- 0.100 | 2.00 | 50 % |",
                    "| m tp1 batch1 prefill8 | 123 +- 0.100 | 2.00 | 50 % |",
                    "| n2 8KiB | 2.60 | 6.50 |", "| x beside y | us | 1.00 | 9.00 | 2.00 | 88 % |",
                    "| segments of 64 MiB | step growing | median | 360 |",
                    "| m tp2 batch1 ctx8 | 2.50 +- 0.100 | 400 | 1.60 | 80 % |",
                    "| reuse-on rate3 |  |  |  |  | held |",
                    "| 2 x H200 | 3.00 requests/s | without prefix reuse 2.00 hold, 2.20 do not |",
                    "| m batch1 ctx8 | 90.0 +- 0.100 | 50.0 +- 0.100 | 40.0 +- 0.100 |",
                    "<summary><b>Scaling over ranks</b> (2 x H200)</summary>",
                    "| m tp1 batch1 ctx8 | tpot_ms | 5.00 | 4.00 | +25.0 % (!) |",
                    "2 x H200, CUDA 13.0; commit abc, 2026-01-02; `run latency`"):
            self.assertIn(row, text)

    def test_the_first_table_names_what_it_is_beside(self):
        cases = (("m tandem batch1 ctx128", 90.0), ("m tandem dense batch1 ctx128", 50.0),
                 ("m llama.cpp batch1 ctx128", 40.0))
        text = readme_results.generate({
            "l": document("latency", ("llama-3-8b bf16 tp1 batch1 ctx128", "tpot_ms", 4.0)),
            "a": document("all_reduce",
                          ("reduce-add-norm bf16 n2 push graph 1x4096", "latency_us", 4.07),
                          ("reduce-add-norm bf16 n2 nccl graph 1x4096", "latency_us", 8.76)),
            "c": {**document("llama_cpp-cpu", *((f"smollm2-135{case}", "tokens_per_s", value)
                                                for case, value in cases)),
                  "work": {"threads": 2, "llama_cpp_python": "0.3"}},
        })
        for row in ("| Llama-3-8B, a token of one user | 2 x H200 | 4.00 ms | 2.00 ms floor: "
                    "50 % of its speed |",
                    "| 4.07 us | NCCL and a norm in the same run: 8.76 |",
                    "2 threads | 2 x H200 | 90.0 tokens/s | llama.cpp in the same run: 40.0 |"):
            self.assertIn(row, text)

    def test_results_of_one_title_open_together(self):
        text = readme_results.generate({
            name: document("latency", (f"{name} tp1 batch1 ctx8", "tpot_ms", 4.0))
            for name in ("one", "two", "three")})
        self.assertEqual(text.count("<details>"), 1)
        self.assertIn("<summary><b>Decode against the floor of memory bandwidth</b> (3 tables, "
                      "2 x H200)</summary>", text)


if __name__ == "__main__":
    unittest.main()
