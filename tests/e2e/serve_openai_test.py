# SPDX-License-Identifier: Apache-2.0
"""The official `openai` client against `tandem serve` on two CPU ranks."""

import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import served  # noqa: E402

if __name__ == "__main__" and not os.environ.get("TANDEM_TEST_VENV"):
    os.environ["TANDEM_TEST_VENV"] = "1"
    python = served.python_with("openai")
    os.execv(python, [python, *sys.argv])

import openai  # noqa: E402

MODEL = served.MODELS / "llama-9q3kv"
REFERENCE = json.loads((MODEL / "reference.json").read_text())["cases"]
KEY = {"Authorization": "Bearer secret"}
HELLO = [{"role": "user", "content": "hello there"}]


class OpenAiClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = served.Served(MODEL, ranks=2, arguments=["--api-key", "secret"]).__enter__()
        cls.client = openai.OpenAI(api_key="secret", max_retries=0,
                                   base_url=f"http://127.0.0.1:{cls.server.port}/v1")

    @classmethod
    def tearDownClass(cls):
        cls.server.end()
        assert cls.server.process.returncode == 0, cls.server.log

    def test_models(self):
        models = self.client.models.list().data
        self.assertEqual([m.id for m in models], ["llama-9q3kv"])
        self.assertEqual(self.client.models.retrieve("llama-9q3kv").id, "llama-9q3kv")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("gpt-4")

    def test_greedy_answers_are_those_of_transformers(self):
        for case in REFERENCE:
            answer = self.client.completions.create(
                model="llama-9q3kv", prompt=case["prompt"], temperature=0, logprobs=1,
                max_tokens=len(case["greedy_tokens"]), extra_body={"ignore_eos": True})
            choice = answer.choices[0]
            want = [self.server.request("POST", "/detokenize", {"tokens": [token]}, KEY)[1]["prompt"]
                    for token in case["greedy_tokens"]]
            self.assertEqual(choice.logprobs.tokens, want)
            self.assertEqual(choice.finish_reason, "length")
            self.assertEqual(answer.usage.prompt_tokens, len(case["prompt"]))
            self.assertEqual(answer.usage.completion_tokens, len(case["greedy_tokens"]))

    def test_chat_streamed_and_whole_are_equal(self):
        arguments = dict(model="llama-9q3kv", messages=HELLO, max_tokens=20, temperature=0.9,
                         seed=5, logprobs=True, top_logprobs=3, n=2)
        whole = self.client.chat.completions.create(**arguments)
        texts, tokens, ends, roles, usage = {0: "", 1: ""}, {0: [], 1: []}, {}, {}, None
        for chunk in self.client.chat.completions.create(
                **arguments, stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                if choice.delta.role:
                    roles[choice.index] = choice.delta.role
                texts[choice.index] += choice.delta.content or ""
                if choice.logprobs:
                    tokens[choice.index] += [t.token for t in choice.logprobs.content]
                if choice.finish_reason:
                    ends[choice.index] = choice.finish_reason
        self.assertEqual(roles, {0: "assistant", 1: "assistant"})
        self.assertEqual(usage, whole.usage)
        self.assertNotEqual(texts[0], texts[1])
        for choice in whole.choices:
            self.assertEqual(texts[choice.index], choice.message.content)
            self.assertEqual(ends[choice.index], choice.finish_reason)
            content = choice.logprobs.content
            self.assertEqual(tokens[choice.index], [t.token for t in content])
            self.assertTrue(all(len(t.top_logprobs) == 3 for t in content))
            self.assertTrue(all(t.logprob <= t.top_logprobs[0].logprob for t in content))

    def test_stop_strings_end_the_text_in_front_of_them(self):
        ask = dict(model="llama-9q3kv", prompt=REFERENCE[0]["prompt"], temperature=0,
                   max_tokens=20, extra_body={"ignore_eos": True})
        free = self.client.completions.create(**ask).choices[0].text
        stop = free[len(free) // 2:len(free) // 2 + 2]
        cut = self.client.completions.create(**ask, stop=stop).choices[0]
        self.assertEqual(cut.text, free[:free.index(stop)])
        self.assertEqual((cut.finish_reason, cut.stop_reason), ("stop", stop))
        pieces = self.client.completions.create(**ask, stop=[stop, "never"], stream=True)
        self.assertEqual("".join(p.choices[0].text for p in pieces), free[:free.index(stop)])
        ask["extra_body"]["include_stop_str_in_output"] = True
        kept = self.client.completions.create(**ask, stop=stop).choices[0].text
        self.assertEqual(kept, free[:free.index(stop)] + stop)

    def test_seeds_decide_and_biases_force(self):
        ask = dict(model="llama-9q3kv", messages=HELLO, max_tokens=12, temperature=1.0)
        create = lambda **more: self.client.chat.completions.create(**ask, **more).choices[0]
        self.assertEqual(create(seed=1).message.content, create(seed=1).message.content)
        self.assertNotEqual(create(seed=1).message.content, create(seed=2).message.content)
        forced = create(logit_bias={"70": 100}, logprobs=True)
        self.assertEqual(len({t.token for t in forced.logprobs.content}), 1)
        allowed = create(extra_body={"allowed_token_ids": [70]}, logprobs=True)
        self.assertEqual({t.token for t in allowed.logprobs.content},
                         {t.token for t in forced.logprobs.content})

    def test_batches_of_prompts_and_echo(self):
        answer = self.client.completions.create(
            model="llama-9q3kv", prompt=["one", "two"], n=2, max_tokens=3, temperature=1, echo=True)
        self.assertEqual([c.index for c in answer.choices], [0, 1, 2, 3])
        self.assertTrue(all(c.text.startswith("one") for c in answer.choices[:2]))
        self.assertTrue(all(c.text.startswith("two") for c in answer.choices[2:]))

    def test_errors_are_typed(self):
        create = self.client.chat.completions.create
        with self.assertRaises(openai.BadRequestError) as wrong:
            create(model="llama-9q3kv", messages=HELLO, tools=[{"type": "function", "function": {
                "name": "f"}}])
        self.assertEqual(wrong.exception.param, "tools")
        with self.assertRaises(openai.BadRequestError) as wrong:
            create(model="llama-9q3kv", messages=HELLO, max_tokens=1000)
        self.assertIn("maximum context length is 256", wrong.exception.message)
        with self.assertRaises(openai.BadRequestError):
            create(model="llama-9q3kv", messages=HELLO, temperature=-1)
        with self.assertRaises(openai.NotFoundError):
            create(model="other", messages=HELLO)
        with self.assertRaises(openai.AuthenticationError):
            self.client.with_options(api_key="wrong").models.list()

    def test_an_abandoned_stream_frees_everything(self):
        stream = self.client.completions.create(
            model="llama-9q3kv", prompt="x", max_tokens=240, stream=True, temperature=0,
            extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.server.wait_until_idle()


if __name__ == "__main__":
    unittest.main()
