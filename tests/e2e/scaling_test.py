# SPDX-License-Identifier: Apache-2.0
"""`tandem bench scaling` on two CPU ranks: results, refusals, and nothing left when it is ended."""
import csv
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree as xml

TANDEM = os.environ["TANDEM"]
MODEL = str(pathlib.Path(os.environ["TANDEM_SOURCE"]) / "tests/fixtures/models/llama-9q3kv")
ENV = {name: value for name, value in os.environ.items()
       if not name.startswith(("SLURM_", "OMPI_COMM", "PMIX_"))}
ENV |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1"}
SMALL = ["--model", MODEL, "--device", "cpu", "--dtype", "float32", "--input-len", "8",
         "--output-len", "4", "--num-iters", "2", "--kv-cache-memory", "64MiB"]


def scaling(*words, timeout=120):
    return subprocess.run([TANDEM, "bench", "scaling", *words], env=ENV, text=True,
                          capture_output=True, timeout=timeout)


def alive(mark):
    """Processes whose command line holds `mark`."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


class Scaling(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.result = scaling(*SMALL, "--sizes", "1", "2", "--rounds", "2", "--batch-size", "1", "2",
                          "--prefill-len", "16", "--json", cls.folder / "s.json", "--csv",
                          cls.folder / "s.csv", "--svg", cls.folder / "s.svg")

    def test_json_has_every_size_and_consistent_ratios(self):
        self.assertEqual(self.result.returncode, 0, self.result.stderr)
        document = json.loads((self.folder / "s.json").read_text())
        self.assertEqual(document["bench"], "scaling-cpu")
        self.assertEqual(document["work"]["threads"], max(1, len(os.sched_getaffinity(0)) // 2))
        value = {(row["case"], row["metric"]): row["value"] for row in document["rows"]}
        for ranks, kind in ((1, "decode"), (2, "decode"), (2, "prefill")):
            name = f"llama-9q3kv f32 tp{ranks} {kind} steps"
            parts = {metric: us for (case, metric), us in value.items() if case == name}
            step, exposed = parts.pop("step_us"), parts.pop("exposed_communication_us")
            self.assertAlmostEqual(sum(parts.values()) / step, 1, places=2)
            communication = parts["transfer_us"] + parts["rank_skew_us"]
            self.assertEqual(communication > 0, ranks > 1)
            self.assertAlmostEqual(exposed, communication, delta=communication / 1e4)
        for shape, metric, tokens in (("batch1 ctx8", "tpot_ms", 1), ("batch2 ctx8", "tpot_ms", 2),
                                      ("batch1 prefill16", "ttft_ms", 16)):
            one, two = (f"llama-9q3kv f32 tp{ranks} {shape}" for ranks in (1, 2))
            speed_up = value[one, metric] / value[two, metric]
            self.assertEqual(value[one, "speed_up"], 1)
            self.assertAlmostEqual(value[two, "speed_up"] / speed_up, 1, places=3)
            self.assertAlmostEqual(value[two, "efficiency"] / speed_up, 0.5, places=3)
            self.assertAlmostEqual(value[two, "tokens_per_s"] * value[two, metric] / 1000 / tokens,
                                   1, places=3)
        self.assertEqual({row["runs"] for row in document["rows"]
                          if row["statistic"] == "median"}, {4})

    def test_csv_and_svg(self):
        rows = list(csv.DictReader((self.folder / "s.csv").read_text().splitlines()))
        self.assertEqual([(row["case"], row["ranks"]) for row in rows],
                         [(case, ranks) for case in ("batch1 ctx8", "batch2 ctx8",
                                                     "batch1 prefill16") for ranks in "12"])
        drawing = xml.parse(self.folder / "s.svg").getroot()
        titles = [node.text for node in drawing.iter() if node.get("class") == "title"]
        self.assertEqual(titles, ["Time per output token", "Throughput (decode)",
                                  "Time to first token", "Throughput (prefill)", "Speed-up",
                                  "Efficiency", "Where a decode step goes",
                                  "Where a prefill step goes"])

    def test_unequal_work_is_refused(self):
        paths = []
        for ranks, length in ((1, "4"), (2, "5")):
            path = self.folder / f"{ranks}.json"
            words = [*SMALL, "--threads", "1", "--json", path]
            words[words.index("--output-len") + 1] = length
            subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks),
                            TANDEM, "bench", "latency", *words], env=ENV, check=True,
                           capture_output=True, timeout=60)
            paths.append(path)
        result = scaling("--results", *paths)
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertIn("unequal work is not compared: the output_len is 4 in", result.stderr)
        self.assertIn("and 5 in", result.stderr)

    def test_wrong_words_are_one_sentence(self):
        for words, sentence in (
                (["--model", MODEL, "--sizes", "1", "99"], "tensor-parallel"),
                (["--model", MODEL, "--sizes", "1"], "at least two numbers of ranks"),
                (["--model", MODEL, "--size", "1", "2"], "did you mean --sizes?"),
                ([*SMALL, "--tensor-parallel-size", "2"], "the numbers of ranks from --sizes"),
                (["--sizes", "1", "2"], "no model was named"),
                (["--results", MODEL + "/config.json"], "holds no results"),
                ([*SMALL, "--sizes", "1", "2", "--load-format", "gguf"], "ended with exit code 2")):
            result = scaling(*words)
            self.assertEqual(result.returncode, 2, (words, result.stdout, result.stderr))
            self.assertIn(sentence, result.stderr)
        result = subprocess.run(["mpirun", "--oversubscribe", "-n", "2", TANDEM, "bench", "scaling"],
                                env=ENV, text=True, capture_output=True, timeout=60)
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stderr.count("starts its ranks itself"), 1)

    def test_a_signal_ends_the_ranks_too(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            name = f"ended-by-{number.value}-{os.getpid()}"
            child = subprocess.Popen([TANDEM, "bench", "scaling", "--model", MODEL, "--device",
                                      "cpu", "--sizes", "1", "2", "--num-iters", "100000000",
                                      "--name", name], env=ENV, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True)
            end = time.monotonic() + 30
            while len(alive(name)) < 3 and time.monotonic() < end:  # it, mpirun and a rank
                time.sleep(0.05)
            self.assertGreaterEqual(len(alive(name)), 3)
            child.send_signal(number)
            _, error = child.communicate(timeout=20)
            self.assertEqual(child.returncode, 128 + number, error)
            self.assertIn("its ranks are gone", error)
            end = time.monotonic() + 5
            while alive(name) and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(alive(name), [])


if __name__ == "__main__":
    unittest.main()
