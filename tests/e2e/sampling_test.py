#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What sampling options do to `tandem generate` on 1 to 4 ranks, and log-probabilities of prompts
from the command line and from the server, against transformers' reference logits."""
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import served  # noqa: E402

MODEL = served.MODELS / "llama-14q2kv"
MPIRUN = str(served.SOURCE / "tests/support/mpirun.sh")
REFERENCE = json.loads((MODEL / "reference.json").read_text())["cases"][0]
# Three tokens of one letter each, about equally likely.
LETTERS = ["--allowed-token-id", 70, "--allowed-token-id", 71, "--allowed-token-id", 72,
           "--temperature", 30, "--ignore-eos", "--seed", 3]


def run(*arguments, ranks=1, model=MODEL, prompt="Hello world", tokens=24):
    command = [served.TANDEM, "generate", "--device", "cpu", "--dtype", "float32", "--model",
               str(model), "--json", "--threads", "1", "--prompt", prompt, "--max-tokens",
               str(tokens), *map(str, arguments)]
    if ranks > 1:
        command = [MPIRUN, str(ranks), *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def generate(*arguments, **options):
    done = run(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["outputs"]


def ids(*arguments, **options):
    return generate(*arguments, **options)[0]["token_ids"]


class SamplingTest(unittest.TestCase):
    def test_same_seed_same_text_on_any_number_of_ranks(self):
        choices = ["--temperature", 1, "--top-p", 0.95, "--typical-p", 0.97, "--min-p", 0.001,
                   "--repetition-penalty", 1.1, "--presence-penalty", 0.2, "--frequency-penalty",
                   0.1, "--no-repeat-ngram", 3, "--n", 3, "--min-tokens", 5]
        alone = [o["token_ids"] for o in generate(*choices, "--seed", 11)]
        self.assertEqual(len({tuple(tokens) for tokens in alone}), 3)
        for ranks in (2, 3, 4):
            joined = [o["token_ids"] for o in generate(*choices, "--seed", 11, ranks=ranks)]
            self.assertEqual(joined, alone, ranks)
        self.assertNotEqual([o["token_ids"] for o in generate(*choices, "--seed", 12)], alone)

    def test_logprobs_of_prompt_and_answer(self):
        answers = [generate("--logprobs", 2, "--prompt-logprobs", 3, ranks=n, tokens=4)[0]
                   for n in (1, 3)]
        for one, other in zip(*(a["logprobs"] + a["prompt_logprobs"][1:] for a in answers)):
            self.assertEqual(one["token_id"], other["token_id"])
            self.assertAlmostEqual(one["logprob"], other["logprob"], places=4)
        first = answers[0]["logprobs"][0]
        self.assertEqual(first["token_id"], first["top"][0]["token_id"])  # greedy
        self.assertEqual(len(first["top"]), 2)
        self.assertIsNone(answers[0]["prompt_logprobs"][0])
        wrong = run("--logprobs", 21)
        self.assertNotEqual(wrong.returncode, 0)
        self.assertIn("choose a value from 0 to 20", wrong.stderr)

    def test_bans_and_biases(self):
        plain = ids("--ignore-eos")
        self.assertEqual(set(ids("--logit-bias", "70=100", "--ignore-eos")), {70})
        answer = generate(*LETTERS)[0]
        self.assertEqual(set(answer["token_ids"]), {70, 71, 72})
        word = answer["text"][:2]  # two tokens; each may still come, but not in this order
        for ranks in (1, 2):
            banned = generate(*LETTERS, "--bad-word", word, ranks=ranks)[0]
            self.assertNotIn(word, banned["text"])
            self.assertTrue(banned["text"].startswith(word[0]))
            self.assertIn(word[1], banned["text"])
        single = ids("--ignore-eos", "--logit-bias", f"{plain[0]}=-100")
        self.assertNotEqual(single[0], plain[0])

    def test_ends(self):
        plain = ids("--ignore-eos")
        third = plain[2]
        self.assertNotIn(third, plain[:2])
        stopped = generate("--ignore-eos", "--stop-token-id", third)[0]
        self.assertEqual((stopped["token_ids"], stopped["finish_reason"]), (plain[:3], "stop"))
        later = ids("--ignore-eos", "--stop-token-id", third, "--min-tokens", 6)
        self.assertGreaterEqual(len(later), 6)
        self.assertNotIn(third, later[:6])
        with tempfile.TemporaryDirectory() as folder:  # its generation_config.json wins
            model = pathlib.Path(folder) / "model"
            shutil.copytree(MODEL, model)
            (model / "generation_config.json").write_text(
                json.dumps({"eos_token_id": [1, third], "temperature": 0.0}))
            answer = generate(model=model)[0]
            self.assertEqual((answer["token_ids"], answer["finish_reason"]), (plain[:3], "stop"))

    def test_stop_strings_across_tokens(self):
        text = generate(*LETTERS)[0]["text"]
        stop = text[5:9]
        end = text.index(stop)
        self.assertGreater(end, 0)
        for ranks in (1, 2):
            cut = generate(*LETTERS, "--stop", stop, ranks=ranks)[0]
            self.assertEqual((cut["text"], cut["finish_reason"]), (text[:end], "stop"))
        kept = generate(*LETTERS, "--stop", stop, "--include-stop-str")[0]
        self.assertEqual(kept["text"], text[:end + 4])

    def test_the_server_scores_prompts(self):
        prompt = REFERENCE["prompt"] + REFERENCE["greedy_tokens"]
        with served.Served(MODEL, ranks=2, arguments=["--dtype", "float32"]) as server:
            answer = server.complete(prompt=prompt, max_tokens=2, temperature=0, logprobs=3,
                                     echo=True, prompt_logprobs=1, n=2)
            only = server.complete(prompt=prompt, max_tokens=0, logprobs=3, echo=True)
            again = server.complete(prompt=prompt, max_tokens=0, logprobs=3, echo=True)
            bad = server.request("POST", "/v1/completions",
                                 {"prompt": prompt, "prompt_logprobs": 99})
        self.assertEqual(bad[0], 400)
        self.assertEqual(only["usage"]["completion_tokens"], 0)
        # A prompt that lies in the prefix cache by now is scored all the same.
        self.assertEqual(again["choices"][0]["logprobs"], only["choices"][0]["logprobs"])
        for choice in answer["choices"]:
            logprobs = choice["logprobs"]
            self.assertEqual(len(logprobs["tokens"]), len(prompt) + 2)
            self.assertEqual(logprobs["token_logprobs"][0], None)
            self.assertEqual(logprobs["token_logprobs"][1:len(prompt)],
                             only["choices"][0]["logprobs"]["token_logprobs"][1:])
            self.assertEqual(only["choices"][0]["text"], choice["text"][:len(
                only["choices"][0]["text"])])
            offsets = logprobs["text_offset"]
            self.assertEqual(offsets, sorted(offsets))
            for position, logits in zip(REFERENCE["logit_positions"], REFERENCE["logits"]):
                if position + 1 >= len(prompt):
                    continue
                token = prompt[position + 1]
                exact = logits[token] - math.log(sum(map(math.exp, logits)))
                self.assertAlmostEqual(logprobs["token_logprobs"][position + 1], exact, places=3)
                scores = choice["prompt_logprobs"][position + 1]
                self.assertAlmostEqual(scores[str(token)]["logprob"], exact, places=3)
                self.assertIn(str(max(range(len(logits)), key=logits.__getitem__)), scores)


if __name__ == "__main__":
    unittest.main()
