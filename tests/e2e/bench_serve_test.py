# SPDX-License-Identifier: Apache-2.0
"""`tandem bench serve` against `tandem serve` without a tokenizer, and what both count; `tandem
bench throughput` in its two forms."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import served  # noqa: E402


def bench(*arguments):
    run = subprocess.run([served.TANDEM, "bench", *arguments], capture_output=True, text=True,
                         timeout=300)
    return run.returncode, run.stdout, run.stderr


def rows(report):
    return {(row["case"], row["metric"], row["statistic"]): row for row in report["rows"]}


class BenchServe(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = pathlib.Path(cls.folder.name) / "tiny"
        cls.model.mkdir()
        shutil.copy(served.MODELS / "llama-9q3kv/config.json", cls.model)
        cls.server = served.Served(cls.model, ranks=2, arguments=["--load-format", "dummy"]).__enter__()
        cls.url = f"http://127.0.0.1:{cls.server.port}"

    @classmethod
    def tearDownClass(cls):
        cls.server.end()
        cls.folder.cleanup()

    def test_a_sweep_counts_what_the_server_counts(self):
        before = self.server.status()
        code, out, error = bench(
            "serve", "--base-url", self.url, "--num-prompts", "12", "--input-len", "30",
            "--output-len", "8", "--request-rate", "50", "inf", "--goodput", "ttft:60000",
            "tpot:60000", "--num-warmups", "0", "--json", "-")
        self.assertEqual(code, 0, error)
        after = self.server.status()
        self.assertEqual(after["generated_tokens"] - before["generated_tokens"], 2 * 12 * 8)
        self.assertEqual(after["prefill_tokens"] - before["prefill_tokens"], 2 * 12 * 30)
        report = json.loads(out)
        found = rows(report)
        self.assertEqual(report["bench"], "serve")
        for rate in ("50", "inf"):
            case = f"tiny random in30 out8 rate{rate}"
            self.assertEqual(found[case, "ttft_ms", "p99"]["runs"], 12)
            self.assertEqual(found[case, "itl_ms", "p90"]["runs"] > 12, True)
            self.assertEqual(found[case, "failed", "mean"]["value"], 0)
            self.assertEqual(found[case, "objectives_held", "mean"]["value"], 1)
            self.assertEqual(found[case, "fluidity_index", "mean"]["value"], 1)
            gpu = found[case, "output_tokens_per_s_per_gpu", "mean"]["value"]
            total = found[case, "output_throughput", "mean"]["value"]
            self.assertAlmostEqual(2 * gpu, total, delta=1e-4 * total)

    def test_equal_prefix_hashes_are_reused_and_other_runs_are_not(self):
        trace = pathlib.Path(self.folder.name) / "trace.jsonl"
        trace.write_text("".join(json.dumps(
            {"timestamp": 300 * i, "input_length": 200, "output_length": 4, "hash_ids": [i // 2]})
            + "\n" for i in range(6)))
        code, out, error = bench("serve", "--base-url", self.url, "--trace", f"mooncake:{trace}",
                                 "--request-rate", "10", "10", "--num-warmups", "0",
                                 "--max-concurrency", "1", "--json", "-")
        self.assertEqual(code, 0, error)
        shares = [row["value"] for row in json.loads(out)["rows"]
                  if row["metric"] == "prompt_tokens_reused"]
        # Three of six prompts find the three full chunks of 64 tokens of an equal one.
        self.assertEqual(shares, [3 * 192 / (6 * 200)] * 2)

    def middle_of_a_trace(self):
        """Four requests that find the three full chunks of one of the four before them."""
        trace = pathlib.Path(self.folder.name) / "middle.jsonl"
        trace.write_text("".join(json.dumps(
            {"timestamp": 100 * i, "input_length": 200, "output_length": 4, "hash_ids": [i % 4]})
            + "\n" for i in range(8)))
        return trace

    def test_history_fills_the_prefix_cache_before_each_rate(self):
        arguments = ["--trace", f"mooncake:{self.middle_of_a_trace()}", "--request-rate", "10",
                     "10", "--num-warmups", "0", "--skip-prompts", "4", "--json", "-"]
        for history, share in ["0", 0], ["2", 2 * 192 / 800], ["4", 192 / 200]:
            code, out, error = bench("serve", "--base-url", self.url, "--prefix-history", history,
                                     *arguments)
            self.assertEqual(code, 0, error)
            found = [(row["case"], row["value"]) for row in json.loads(out)["rows"]
                     if row["metric"] == "prompt_tokens_reused"]
            self.assertEqual(found, [("tiny mooncake trace from4 rate10", share)] * 2)

    def test_a_rate_that_cannot_hold_is_cut_short(self):
        code, out, error = bench(
            "serve", "--base-url", self.url, "--num-prompts", "40", "--input-len", "9",
            "--output-len", "3", "--request-rate", "2", "3", "--goodput", "ttft:0.001",
            "--stop-at-miss", "--json", "-")
        self.assertEqual(code, 0, error)
        found = rows(json.loads(out))
        case = "tiny random in9 out3 rate2"
        self.assertEqual({key[0] for key in found}, {case, "sweep"})
        self.assertGreater(found[case, "abandoned", "mean"]["value"], 0)
        self.assertEqual(found[case, "objectives_held", "mean"]["value"], 0)
        self.assertEqual(found["sweep", "highest_rate_held", "max"]["value"], 0)
        self.assertEqual(found["sweep", "lowest_rate_missed", "min"]["value"], 2)
        self.assertEqual(self.server.status()["running"], 0)

    def test_the_highest_rate_is_searched_while_there_is_time(self):
        arguments = ["serve", "--base-url", self.url, "--num-prompts", "6", "--input-len", "9",
                     "--output-len", "3", "--goodput", "ttft:60000", "--find-rate", "200", "400",
                     "--rate-tolerance", "3"]
        code, out, error = bench(*arguments)
        self.assertEqual(code, 0, error)
        self.assertEqual([line.split("rate")[1] for line in out.splitlines()
                          if line.startswith("==")], ["200", "400"])
        self.assertIn("highest rate that holds the objectives: 400.000 requests/s", out)
        code, out, error = bench(*arguments, "--time-budget", "0.000001")
        self.assertEqual(code, 0, error)
        self.assertIn("no time is left for 200.000 requests/s", error)
        self.assertIn("highest rate that holds the objectives: none", out)

    def test_what_prefix_reuse_is_worth(self):
        out = pathlib.Path(self.folder.name) / "mooncake"
        out.mkdir()
        choices = {"OUT": out, "TANDEM": served.TANDEM, "SAMPLE": 1, "SKIP": 4, "HISTORY": 4,
                   "REQUESTS": 4, "LOW": 100, "HIGH": 200, "TOLERANCE": 3, "AIM": 1.5,
                   "LATENCY": "ttft:60000 tpot:60000"}
        run = subprocess.run(
            ["bash", served.SOURCE / "tests/bench/mooncake_reuse.sh", self.middle_of_a_trace(),
             "--model", self.model, "--load-format", "dummy", "--device", "cpu", "--threads", "1"],
            env={**os.environ, **{name: str(value) for name, value in choices.items()}},
            capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("reuse off holds 200 requests/s and misses None, on holds 450 and misses None",
                      run.stdout)
        table = [line for line in run.stdout.splitlines() if line.startswith("| reuse-")]
        self.assertEqual([line.split("|")[5].strip() for line in table],
                         ["0 %"] * 2 + ["96 %"] * 2, run.stdout)

    def test_prompts_of_an_earlier_bench_are_not_found_again(self):
        for _ in range(2):
            code, out, error = bench("serve", "--base-url", self.url, "--num-prompts", "4",
                                     "--input-len", "200", "--output-len", "2", "--json", "-")
            self.assertEqual(code, 0, error)
            shares = [row["value"] for row in json.loads(out)["rows"]
                      if row["metric"] == "prompt_tokens_reused"]
            self.assertEqual(shares, [0])

    def test_a_bench_without_an_answer_fails_and_says_why(self):
        out = pathlib.Path(self.folder.name) / "failed.json"
        code, _, error = bench("serve", "--base-url", self.url, "--num-prompts", "2",
                               "--input-len", "9", "--output-len", "2", "--num-warmups", "0",
                               "--extra-body", '{"top_p": 5}', "--json", str(out))
        self.assertEqual(code, 2, error)
        self.assertIn("every request failed (HTTP 400: top_p is 5", error)
        self.assertEqual(rows(json.loads(out.read_text()))[
            "tiny random in9 out2 rateinf", "failed", "mean"]["value"], 2)

    def test_wrong_use_is_one_sentence(self):
        for arguments, word in [
                (["--request-rate", "0"], "requests per second"), (["--goodput", "ttft"], "ttft:5000"),
                (["--trace", "x:y"], "mooncake:FILE"), (["--dataset-name", "custom"], "--dataset-path"),
                (["--base-url", "http://127.0.0.1:1"], "start the server first"),
                (["--find-rate", "1", "2"], "--goodput ttft:5000"),
                (["--find-rate", "2", "1", "--goodput", "ttft:9"], "above the first"),
                (["--prefix-history", "1"], "--skip-prompts"),
                (["--num-prompts", "99999999999"], "--num-prompts must lie between"),
                (["--input-len", "2147483647"], "--input-len must lie between"),
                (["--base-url", "http://127.0.0.1:99999"], "HOST:PORT"),
                (["--ceiling-model", str(self.model), "--ceiling-gpu", "H900"], "H900"),
                (["--ceiling-model", "/nowhere", "--base-url", self.url], "/nowhere"),
                (["--trace", f"mooncake:{self.middle_of_a_trace()}", "--skip-prompts", "8",
                  "--base-url", self.url], "leaves none of the 8"),
                (["--endpoint", "/v1/chat/completions", "--base-url", self.url, "--input-len", "9"],
                 "no tokenizer")]:
            code, _, error = bench("serve", *arguments)
            self.assertEqual((code, error.count("\n")), (2, 1), error)
            self.assertIn(word, error)

    def test_text_is_refused_by_name_without_a_tokenizer(self):
        for path, body, field in [("/v1/completions", {"prompt": "a"}, "prompt"),
                                  ("/v1/completions", {"prompt": [1], "stop": "a"}, "stop"),
                                  ("/v1/completions", {"prompt": [1], "echo": True}, "echo"),
                                  ("/tokenize", {"prompt": "a"}, "prompt"),
                                  ("/detokenize", {"tokens": [1]}, "tokens")]:
            status, answer, _ = self.server.request("POST", path, body)
            self.assertEqual((status, answer["error"]["param"]), (400, field), answer)
        choice = self.server.complete(prompt=[5, 6], max_tokens=3, ignore_eos=True)["choices"][0]
        self.assertEqual((choice["text"], len(choice["token_ids"])), ("", 3))


class BenchThroughput(unittest.TestCase):
    def run_it(self, *arguments):
        code, out, error = bench("throughput", "--model", str(served.MODELS / "llama-9q3kv"),
                                 "--device", "cpu", "--threads", "1", "--input-len", "20",
                                 "--output-len", "10", "--max-concurrency", "4", "--json", "-",
                                 *arguments)
        self.assertEqual(code, 0, error)
        return rows(json.loads(out)), error

    def test_a_whole_set(self):
        found, error = self.run_it("--num-prompts", "9")
        case = "llama-9q3kv f32 tp1 c4 random in20 out10"
        self.assertIn("9 requests, 180 prompt and 90 output tokens", error)
        requests = found[case, "request_throughput", "mean"]["value"]
        self.assertAlmostEqual(found[case, "total_token_throughput", "mean"]["value"],
                               30 * requests, delta=1e-3 * requests)
        self.assertGreater(found[case, "step_host_us", "p99"]["value"], 0)

    def test_a_steady_state(self):
        found, _ = self.run_it("--steady-state", "--duration", "1", "--warmup", "0.1")
        case = "llama-9q3kv f32 tp1 c4 random in20 out10 steady"
        row = found[case, "output_throughput", "median"]
        self.assertEqual(row["runs"], 5)
        self.assertGreater(row["ceiling"], 0)


if __name__ == "__main__":
    unittest.main()
