# SPDX-License-Identifier: Apache-2.0
"""`tandem bench serve` against `tandem serve` without a tokenizer, and what both count; `tandem
bench throughput` in its two forms."""

import json
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

    def test_wrong_use_is_one_sentence(self):
        for arguments, word in [
                (["--request-rate", "0"], "requests per second"), (["--goodput", "ttft"], "ttft:5000"),
                (["--trace", "x:y"], "mooncake:FILE"), (["--dataset-name", "custom"], "--dataset-path"),
                (["--base-url", "http://127.0.0.1:1"], "start the server first"),
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
