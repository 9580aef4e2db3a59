#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tandem inspect` against numbers worked out by hand from the models' shapes."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import program  # noqa: E402

LLAMA_70B = program.SOURCE / "tests/bench/models/llama-3-70b"


def inspect(model, *more, **options):
    done = program.run("inspect", "--model", str(model), *more, **options)
    assert done.code == 0, done.log()
    return done.text()


def numbers(model, *more, **options):
    return json.loads(inspect(model, "--json", *more, **options))


class Inspect(unittest.TestCase):
    def test_one_rank_holds_each_weight_once(self):
        report = numbers(program.MODELS / "llama-9q3kv")
        # Layer: q and o 72*72, k and v 24*72, MLP 3*336*72, two norms; embedding (tied), last norm.
        matrices = 2 * (2 * 72 * 72 + 2 * 24 * 72 + 3 * 336 * 72) + 384 * 72
        vectors = 2 * 2 * 72 + 72
        self.assertEqual(report["architecture"], "LlamaForCausalLM")
        self.assertEqual(report["parameters"], matrices + vectors)
        self.assertEqual((report["dtype"], report["tensor_parallel_size"]), ("float32", 1))
        rank = report["ranks"][0]
        self.assertEqual(rank["weight_bytes"], 4 * (matrices + vectors))
        self.assertEqual(rank["kv_bytes_per_token"], 2 * 2 * 3 * 8 * 4)
        self.assertEqual((report["imbalance"], report["duplicated_bytes"]), (1, 0))
        self.assertEqual(report["stored"], {"tensors": 2 + 2 * 9, "bytes": 4 * (matrices + vectors),
                                            "bytes_by_type": {"F32": 4 * (matrices + vectors)}})

    def test_uneven_ranks_need_not_be_started(self):
        # 14 query heads over 7 ranks, two each; rank 3 holds heads 6 and 7, of both KV heads.
        report = numbers(program.MODELS / "llama-14q2kv", "--tensor-parallel-size", "7")
        ranks = report["ranks"]
        self.assertEqual([rank["q_heads"] for rank in ranks], [[2 * r, 2 * r + 2] for r in range(7)])
        self.assertEqual([rank["kv_heads"] for rank in ranks],
                         [[0, 1], [0, 1], [0, 1], [0, 2], [1, 2], [1, 2], [1, 2]])
        # 400 MLP columns in 7 units of 64, the last short.
        self.assertEqual([rank["intermediate"] for rank in ranks],
                         [[64 * r, min(64 * r + 64, 400)] for r in range(7)])
        self.assertEqual(report["duplicated_kv_bytes_per_token"], 6 * 2 * 2 * 8 * 4)
        weights = [rank["weight_bytes"] for rank in ranks]
        self.assertAlmostEqual(report["imbalance"], max(weights) * 7 / sum(weights))
        # The width of k and v rows is 56; six times a head's rows and biases are held too often, and
        # six times what every rank needs: norms and the biases of o and down.
        self.assertEqual(report["duplicated_bytes"],
                         4 * (6 * 2 * 2 * (8 * 56 + 8) + 6 * (2 * 4 * 56 + 56)))

    def test_a_config_alone_and_a_type(self):
        report = numbers(LLAMA_70B, "--tensor-parallel-size", "8")
        self.assertEqual(report["parameters"], 70553706496)
        self.assertIsNone(report["stored"])
        self.assertEqual(report["ranks"][0]["kv_bytes_per_token"], 2 * 80 * 1 * 128 * 2)
        full = numbers(LLAMA_70B, "--tensor-parallel-size", "8", "--dtype", "float32")
        self.assertEqual(full["ranks"][0]["kv_bytes_per_token"], 2 * 80 * 1 * 128 * 4)
        self.assertIn("--load-format dummy", inspect(LLAMA_70B))

    def test_gguf(self):
        folder = numbers(program.MODELS / "llama-bf16")
        file = numbers(program.MODELS / "llama-bf16.gguf")
        for key in ("parameters", "ranks", "layers", "heads", "vocab_size", "dtype"):
            self.assertEqual(file[key], folder[key])
        self.assertEqual(set(file["stored"]["bytes_by_type"]), {"BF16", "F32"})

    def test_few_bits_that_cpu_ranks_keep(self):
        model = program.MODELS / "llama-quants.gguf"
        for rank in numbers(model, "--tensor-parallel-size", "2")["ranks"]:
            self.assertLess(rank["cpu_weight_bytes"], 0.8 * rank["weight_bytes"])
        self.assertIn("on CPU ranks", inspect(model))
        self.assertNotIn("on CPU ranks", inspect(program.MODELS / "llama-bf16.gguf"))

    def test_text_for_people_is_said_once(self):
        text = inspect(program.MODELS / "llama-9q3kv", ranks=2)
        self.assertEqual(text.count("LlamaForCausalLM"), 1)
        lines = text.splitlines()
        table = [line.split() for line in lines[lines.index("") + 1:]]
        self.assertEqual(table[1][:4], ["0", "0-4", "(5)", "0-1"])
        self.assertEqual(table[2][:4], ["1", "5-8", "(4)", "1-2"])
        self.assertIn("imbalance 1.1", text)


if __name__ == "__main__":
    unittest.main()
