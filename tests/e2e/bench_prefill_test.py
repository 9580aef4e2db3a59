# SPDX-License-Identifier: Apache-2.0
"""`tandem bench overlap|mixed|domains` and `--overlap` on CPU ranks: results and refusals."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

TANDEM = os.environ["TANDEM"]
SOURCE = pathlib.Path(os.environ["TANDEM_SOURCE"])
MODEL = ["--model", str(SOURCE / "tests/fixtures/models/llama-9q3kv"), "--device", "cpu",
         "--dtype", "float32", "--threads", "1", "--kv-cache-memory", "64MiB"]


def tandem(*words, ranks=1):
    command = [TANDEM, *map(str, words)]
    if ranks > 1:
        command = [str(SOURCE / "tests/support/mpirun.sh"), str(ranks), *command]
    return subprocess.run(command, text=True, capture_output=True, timeout=200)


class BenchPrefill(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def rows(self, name):
        document = json.loads((self.folder / name).read_text())
        return document, {(row["case"], row["metric"]): row for row in document["rows"]}

    def test_overlap_reports_both_settings_per_layer(self):
        result = tandem("bench", "overlap", *MODEL, "--prefill-len", 40, "--num-iters", 3, "--json",
                        self.folder / "o.json", ranks=2)
        self.assertEqual(result.returncode, 0, result.stderr)
        document, rows = self.rows("o.json")
        self.assertEqual(document["bench"], "overlap-cpu")
        for setting in ("off", "on"):
            case = f"llama-9q3kv f32 tp2 prefill40 overlap {setting}"
            self.assertEqual({metric for name, metric in rows if name == case},
                             {"layer_us", "layer_compute_us", "layer_communication_us",
                              "layer_exposed_us"})
            for metric in ("layer_us", "layer_compute_us", "layer_communication_us"):
                self.assertGreater(rows[case, metric]["value"], 0)
            self.assertEqual(rows[case, "layer_us"]["runs"], 3)
        self.assertIn("exposed", result.stdout)

    def test_one_rank_has_nothing_to_overlap(self):
        result = tandem("bench", "overlap", *MODEL)
        self.assertEqual(result.returncode, 2)
        self.assertIn("mpirun -n 2 tandem bench overlap", result.stderr)
        result = tandem("generate", *MODEL, "--overlap=on", "--prompt", "a", "--max-tokens", 1)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr.count("nothing to overlap"), 1, result.stderr)
        result = tandem("generate", *MODEL, "--overlap=sometimes", "--prompt", "a")
        self.assertEqual(result.returncode, 2)
        self.assertIn("auto, on, off", result.stderr)

    def test_overlapped_text_is_the_plain_text(self):
        texts = [tandem("generate", *MODEL, f"--overlap={overlap}", "--prompt",
                        "The quick brown fox jumps over the lazy dog.", "--max-tokens", 12, "--json",
                        ranks=3) for overlap in ("off", "on")]
        tokens = []
        for text in texts:
            self.assertEqual(text.returncode, 0, text.stderr)
            tokens.append(json.loads(text.stdout)["outputs"][0]["token_ids"])
        self.assertEqual(*tokens)

    def test_mixed_reports_pace_before_and_during(self):
        result = tandem("bench", "mixed", *MODEL, "--batch-size", 2, "--input-len", 4,
                        "--prompt-len", 60, "--alone-len", 20, "--num-iters", 1,
                        "--max-num-mixed-tokens", 10, "--max-num-batched-tokens", 64, "--json",
                        self.folder / "m.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        document, rows = self.rows("m.json")
        self.assertEqual(document["bench"], "mixed-cpu")
        case = "llama-9q3kv f32 tp1 batch2 ctx4 beside prefill60 mixed10"
        for metric in ("tpot_p99_before_ms", "tpot_p99_during_ms", "itl_p99_during_ms",
                       "tpot_ratio", "ttft_alone_ms", "ttft_mixed_ms", "ttft_ratio"):
            self.assertGreater(rows[case, metric]["value"], 0, metric)

    def test_both_domains_publish_zero_where_nothing_is_separated(self):
        result = tandem("bench", "latency", *MODEL, "--prefill-len", 40, "--num-iters", 3,
                        "--mem-sync-domains=both", "--json", self.folder / "d.json", ranks=2)
        self.assertEqual(result.returncode, 0, result.stderr)
        _, rows = self.rows("d.json")
        case = "llama-9q3kv f32 tp2 batch1 prefill40"
        self.assertEqual(rows[case, "saved_by_separation_ms"]["runs"], 3)
        self.assertIn((case + " same domain", "ttft_ms"), rows)
        result = tandem("bench", "latency", *MODEL, "--mem-sync-domains=both")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--prefill-len", result.stderr)

    def test_domains_without_a_gpu_are_refused(self):
        result = tandem("bench", "domains")
        if result.returncode == 0:
            self.skipTest("this machine has a GPU")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        result = tandem("bench", "domains", ranks=2)
        self.assertIn("without mpirun", result.stderr)


if __name__ == "__main__":
    unittest.main()
