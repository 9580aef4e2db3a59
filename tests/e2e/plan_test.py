# SPDX-License-Identifier: Apache-2.0
"""`tandem plan`: tables, predictions, the picture, the check, and what it refuses."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as xml

TANDEM = os.environ["TANDEM"]
SOURCE = pathlib.Path(os.environ["TANDEM_SOURCE"])
MODEL = str(SOURCE / "tests/bench/models/llama-3-8b")
CLUSTER = str(SOURCE / "cluster_configs/h200x8.ini")


def plan(*words):
    return subprocess.run([TANDEM, "plan", *words], text=True, capture_output=True, timeout=60)


class Plan(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))

    def predict(self, name, *words):
        path = self.folder / name
        result = plan("--model", MODEL, "--cluster", CLUSTER, *words, "--json", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout, json.loads(path.read_text())

    def test_predictions_are_named_like_results(self):
        text, document = self.predict("p.json", "--batch", "1", "8", "--prefill-len", "2048")
        cases = [(row["case"], row["metric"]) for row in document["rows"]]
        self.assertEqual(cases[:3], [("llama-3-8b bf16 tp1 batch1 ctx128", "tpot_ms"),
                                     ("llama-3-8b bf16 tp1 batch8 ctx128", "tpot_ms"),
                                     ("llama-3-8b bf16 tp1 batch1 prefill2048", "ttft_ms")])
        self.assertEqual(len(cases), 4 * 3)
        # Weights alone: 7.5 billion read at 4800 GB/s.
        self.assertGreater(document["rows"][0]["value"], 2 * 7.5e9 / 4800e9 * 1000)
        self.assertRegex(text, r"take [1248] rank")
        self.assertIn("where a decode step on", text)

    def test_more_ranks_for_a_model_that_does_not_fit(self):
        result = plan("--model", str(SOURCE / "tests/bench/models/llama-3-70b"), "--cluster",
                      CLUSTER)
        self.assertRegex(result.stdout, r"\n1 .*the weights do not fit")
        self.assertRegex(result.stdout, r"take [248] ranks")

    def test_says_that_cpu_ranks_keep_few_bits(self):
        laptop = str(SOURCE / "cluster_configs" / "laptop_cpu.ini")
        models = SOURCE / "tests/fixtures/models"
        for model, cluster, said in (("llama-quants.gguf", laptop, True),
                                     ("llama-quants.gguf", CLUSTER, False),
                                     ("llama-bf16.gguf", laptop, False)):
            result = plan("--model", str(models / model), "--cluster", cluster, "--input-len", "8",
                          "--output-len", "8")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual("CPU ranks keep q8_0" in result.stdout, said, result.stdout)

    def test_the_sweep_is_a_picture(self):
        path = self.folder / "sweep.svg"
        result = plan("--model", MODEL, "--cluster", CLUSTER, "--sweep", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        root = xml.parse(path).getroot()
        texts = [node.text for node in root.iter() if node.text]
        self.assertIn("8 ranks", texts)
        self.assertGreater(sum(node.tag.endswith("circle") for node in root.iter()), 20)

    def test_check_against_results(self):
        self.predict("p.json")
        document = json.loads((self.folder / "p.json").read_text())
        for factor, code in ((1.1, 0), (0.7, 1)):
            for row in document["rows"]:
                row["value"] *= factor
            (self.folder / "r.json").write_text(json.dumps(document))
            result = plan("--check", self.folder / "r.json", "--predicted", self.folder / "p.json")
            self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"llama-3-8b bf16 tp1 batch1 ctx128 +tpot_ms .*\+29\.9 % !")

    def test_rates_of_two_ranks_calibrate(self):
        rates, path = self.folder / "rates.json", self.folder / "measured.json"
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
        subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", TANDEM,
                        "doctor", "--device", "cpu", "--threads", "1", "--rates", rates],
                       env=environment, capture_output=True, timeout=300, check=True)
        document = json.loads(rates.read_text())
        measured, elsewhere = document["rates"], {**document["machine"], "cpu": "Elsewhere"}
        rates.write_text(json.dumps({**document, "machine": elsewhere}))
        self.assertEqual((measured["device"], measured["ranks"]), ("cpu", 2))
        sizes = [size for size, _ in measured["all_reduce_us"]]
        self.assertEqual(sizes, sorted(sizes))
        result = plan("--model", str(SOURCE / "tests/bench/models/smollm2-135m"), "--doctor", rates,
                      "--json", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        # Of the machine whose rates they are, wherever the plan is made.
        self.assertEqual(json.loads(path.read_text())["machine"], elsewhere)
        self.assertEqual([row["case"] for row in json.loads(path.read_text())["rows"]],
                         [f"smollm2-135m bf16 tp{ranks} batch1 ctx128" for ranks in (1, 2)])
        result = plan("--model", MODEL, "--doctor", rates, "--tp", "4")
        self.assertIn("messages between 4 ranks were not measured", result.stderr)

    def test_wrong_words_are_one_sentence(self):
        rates = self.folder / "no.json"
        rates.write_text('{"status": "green"}')
        for words, sentence in (
                (["--cluster", CLUSTER], "no model was named"),
                (["--model", MODEL], "no machine was named"),
                (["--model", MODEL, "--cluster", "nowhere.ini"], "cannot read nowhere.ini"),
                (["--model", MODEL, "--cluster", CLUSTER, "--tp", "99"], "tensor-parallel"),
                (["--model", MODEL, "--cluster", CLUSTER, "--batch", "0"], "--batch must be"),
                (["--model", MODEL, "--cluster", CLUSTER, "--input-len", "9999999"],
                 "--input-len 9999999 and 128 tokens more do not fit into the"),
                (["--model", MODEL, "--cluster", CLUSTER, "--prefill-len", "9999999"],
                 "--prefill-len 9999999 and 1 token more do not fit into the"),
                (["--model", MODEL, "--cluster", CLUSTER, "--btach", "1"], "did you mean --batch"),
                (["--model", MODEL, "--cluster", CLUSTER, "--dtype", "int8"], "none of auto"),
                (["--model", MODEL, "--doctor", rates], "holds no measured rates"),
                (["--model", MODEL, "--cluster", CLUSTER, "--batch", "9999999"], "fits on no"),
                (["--check", rates], "--predicted FILE"),
                (["--check", rates, "--predicted", rates], "holds no rows of results")):
            result = plan(*words)
            self.assertEqual(result.returncode, 2, (words, result.stdout, result.stderr))
            self.assertIn(sentence, result.stderr)
            self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)


if __name__ == "__main__":
    unittest.main()
