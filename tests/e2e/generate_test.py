#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tandem generate` and `tandem tokenize` as people and programs use them."""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import program  # noqa: E402

MODEL = program.MODELS / "llama-9q3kv"
GREEDY = ["--model", str(MODEL), "--temperature", "0", "--max-tokens", "8", "--ignore-eos",
          "--dtype", "float32"]
TEXT = "The quick brown fox"


def generate(*arguments, **options):
    done = program.run("generate", *GREEDY, *arguments, **options)
    assert done.code == 0, done.log()
    return done


def report(*arguments, **options):
    return json.loads(generate("--json", *arguments, **options).text())


def tokenize(*arguments, model=MODEL, **options):
    done = program.run("tokenize", "--model", str(model), *arguments, **options)
    assert done.code == 0, done.log()
    return done.text()


class Generate(unittest.TestCase):
    def test_prompt_file_and_stdin_are_the_same(self):
        wanted = generate("--prompt", TEXT).out
        self.assertTrue(wanted.endswith(b"\n"))
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(TEXT)
            file.flush()
            self.assertEqual(generate("--prompt-file", file.name).out, wanted)
        self.assertEqual(generate(stdin=TEXT.encode()).out, wanted)
        self.assertEqual(generate("--prompt-file", "-", stdin=TEXT.encode()).out, wanted)
        self.assertEqual(generate(stdin=TEXT.encode(), ranks=2).out, wanted)
        self.assertNotEqual(generate("--prompt", "Another").out, wanted)

    def test_json_is_one_object_and_equal_at_any_rank_count(self):
        wanted = report("--prompt", TEXT)["outputs"]
        self.assertEqual(len(wanted[0]["token_ids"]), 8)
        tokens = len(tokenize("--text", TEXT).split())
        for ranks in (1, 2, 3):
            done = report("--prompt", TEXT, ranks=ranks)
            self.assertEqual((done["ranks"], done["prompt_tokens"]), (ranks, tokens))
            self.assertEqual(done["outputs"], wanted)
            self.assertEqual(done["outputs"][0]["finish_reason"], "length")
            self.assertEqual(set(done["timing"]), {"load_s", "ttft_ms", "tpot_ms", "tokens_per_s"})
            self.assertTrue(all(value > 0 for value in done["timing"].values()))
            self.assertTrue(done["device"].startswith("cpu"))
            self.assertEqual(len(done["bytes_read"]), ranks)

    def test_bytes_read_are_those_of_the_slices(self):
        # Per layer a rank reads q, o and the MLP matrices of its heads and columns, k and v of the
        # KV heads that it touches, and both norms; and its rows of the (tied) embedding, which are
        # read a second time where the head is packed.
        inspected = json.loads(program.run("inspect", "--model", str(MODEL), "--json",
                                           "--tensor-parallel-size", "2").text())
        done = generate("--prompt", TEXT, "--json", ranks=2)
        for rank, read in zip(inspected["ranks"], json.loads(done.text())["bytes_read"]):
            table = 4 * 72 * (rank["vocab"][1] - rank["vocab"][0])
            self.assertIn(read - rank["weight_bytes"], (0, table))
        self.assertIn("read of the checkpoint: rank 0", done.log())
        self.assertIn("imbalance 1.1", done.log())

    def test_several_prompts_run_together_and_answer_in_order(self):
        prompts = [TEXT, "Where does a rank wait", "Every"]
        together = report(*(word for text in prompts for word in ("--prompt", text)), ranks=2)
        alone = [report("--prompt", text)["outputs"][0] for text in prompts]
        self.assertEqual(together["outputs"], alone)
        shown = generate(*(word for text in prompts for word in ("--prompt", text))).text()
        self.assertEqual(shown, "\n".join(output["text"] + "\n" for output in alone))

    def test_chat_applies_the_template(self):
        rendered = "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n" \
                   "<|im_start|>assistant\n"
        self.assertEqual(
            report("--chat", "--system", "Be brief", "--prompt", "Hi")["outputs"],
            report("--prompt", rendered)["outputs"])
        self.assertEqual(tokenize("--chat", "--text", "Hi").split()[:1], ["1"])

    def test_dummy_weights_are_the_same_at_any_rank_count(self):
        done = [report("--prompt", TEXT, "--load-format", "dummy", ranks=ranks)
                for ranks in (1, 2, 3)]
        self.assertEqual(done[0]["outputs"], done[1]["outputs"])
        self.assertEqual(done[0]["outputs"], done[2]["outputs"])
        self.assertEqual(done[1]["bytes_read"], [0, 0])
        other = report("--prompt", TEXT, "--load-format", "dummy", "--dummy-seed", "1")
        self.assertNotEqual(done[0]["outputs"], other["outputs"])

    def test_gguf_answers_like_its_folder(self):
        same = ["--prompt", TEXT, "--json", "--max-tokens", "8", "--temperature", "0"]
        answers = [json.loads(program.run("generate", "--model", str(program.MODELS / name), *same,
                                          ranks=2).text())["outputs"]
                   for name in ("llama-bf16", "llama-bf16.gguf")]
        self.assertEqual(answers[0], answers[1])

    def test_logs_stay_out_of_the_answer(self):
        done = generate("--prompt", TEXT, ranks=2)
        self.assertNotIn(b"\x1b", done.out + done.err)  # no control codes in a pipe
        self.assertNotIn("info |", done.text())
        self.assertRegex(done.log(), r"\[load .* s \| first token .* tokens/s \| 8 tokens \| 2 ranks")


class Tokenize(unittest.TestCase):
    def test_there_and_back(self):
        for text in (TEXT, "naïve café 🙂 東京", " two  spaces\n\n\ttab "):
            ids = tokenize("--text", text).split()
            self.assertEqual(tokenize("--ids", *ids), text + "\n")
            self.assertEqual(tokenize(stdin=text.encode()).split(), ids)
            found = json.loads(tokenize("--json", "--text", text))
            self.assertEqual(found["token_ids"], [int(word) for word in ids])
            self.assertEqual(json.loads(tokenize("--json", "--ids", *ids))["text"], text)
        self.assertEqual(tokenize("--text", TEXT, ranks=2), tokenize("--text", TEXT))


class Words(unittest.TestCase):
    def test_version_and_help(self):
        version = program.run("--version")
        self.assertRegex(version.text(), r"^tandem \d+\.\d+\.\d+")
        self.assertEqual(program.run("--version", ranks=2).out, version.out)
        overview = program.run("--help").text()
        for command in ("generate", "inspect", "tokenize", "launch"):
            self.assertIn(f"\n  {command} ", overview)
            shown = program.run(command, "--help")
            self.assertEqual(shown.code, 0)
            self.assertIn(f"tandem {command} --", shown.text())
        self.assertEqual(program.run("generate", "--help", ranks=2).text().count("usage:"), 1)


if __name__ == "__main__":
    unittest.main()
