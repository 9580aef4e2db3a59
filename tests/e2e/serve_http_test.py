# SPDX-License-Identifier: Apache-2.0
"""`tandem serve` over raw HTTP: endpoints, limits, signals. One CPU rank unless said otherwise."""

import http.client
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import served  # noqa: E402

MODEL = served.MODELS / "llama-bf16"
LONG = {"prompt": "x", "max_tokens": 250, "ignore_eos": True, "temperature": 0}
ENDLESS = dict(LONG, max_tokens=15000)


class Endpoints(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = served.Served(
            MODEL, arguments=["--max-waiting", "4", "--max-request-bytes", "100KiB"]).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.end()

    def refused(self, status, method, path, body=None, param=None):
        got, answer, headers = self.server.request(method, path, body)
        self.assertEqual(got, status, answer)
        self.assertEqual(answer["error"]["code"], status)
        self.assertEqual(answer["error"]["param"], param)
        self.assertTrue(answer["error"]["message"])
        return headers

    def test_plain_endpoints(self):
        self.assertEqual(self.server.request("GET", "/health")[0], 200)
        self.assertEqual(self.server.request("HEAD", "/health")[1], "")
        self.assertIn("tandem", self.server.request("GET", "/version")[1]["version"])
        self.assertEqual(self.server.request("GET", "/v1/models")[1]["data"][0]["id"], "llama-bf16")

    def test_tokens_there_and_back(self):
        status, answer, _ = self.server.request(
            "POST", "/tokenize", {"prompt": "hello there", "add_special_tokens": False})
        self.assertEqual(status, 200)
        self.assertEqual(answer["count"], len(answer["tokens"]))
        self.assertEqual(answer["max_model_len"], 256)
        back = self.server.request("POST", "/detokenize", {"tokens": answer["tokens"]})[1]
        self.assertEqual(back["prompt"], "hello there")
        chat = self.server.request(
            "POST", "/tokenize", {"messages": [{"role": "user", "content": "hi"}]})[1]
        self.assertGreater(chat["count"], 4)
        self.refused(400, "POST", "/detokenize", {"tokens": [10 ** 6]})

    def test_wrong_requests(self):
        self.refused(404, "GET", "/nothing")
        self.assertEqual(self.refused(405, "GET", "/v1/completions")["Allow"], "POST")
        self.refused(405, "POST", "/health")
        self.refused(400, "POST", "/v1/completions", "{")
        self.refused(400, "POST", "/v1/completions", b'{"prompt": "\xff"}')
        self.refused(400, "POST", "/v1/completions", {}, "prompt")
        self.refused(400, "POST", "/v1/completions", {"prompt": ""}, "prompt")
        self.refused(400, "POST", "/v1/completions", {"prompt": [5000]}, "prompt")
        self.refused(400, "POST", "/v1/completions", {"prompt": "a " * 400}, "prompt")
        self.refused(400, "POST", "/v1/completions", {"prompt": "a", "logit_bias": {"9999": 1}},
                     "logit_bias")
        self.refused(400, "POST", "/v1/completions", {"prompt": "a", "n": 5})
        for field, value in {"temperature": -1, "top_p": 2, "n": 0, "min_p": 2, "stop": [""],
                             "presence_penalty": 3, "repetition_penalty": 0}.items():
            self.refused(400, "POST", "/v1/completions", {"prompt": "a", field: value}, field)
        self.refused(400, "POST", "/v1/chat/completions", {"messages": [{"role": "user",
                     "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages")
        self.refused(413, "POST", "/v1/completions", "x" * 200000)
        self.refused(404, "POST", "/v1/completions", {"prompt": "a", "model": "b"}, "model")

    def test_metrics_count(self):
        def metric(name, label=""):
            text = self.server.request("GET", "/metrics")[1]
            lines = [line for line in text.splitlines() if line.startswith(f"tandem_{name}{{{label}")]
            return sum(float(line.split()[-1]) for line in lines)
        self.server.wait_until_idle()
        before = metric("generation_tokens_total")
        first = metric("time_to_first_token_seconds_count")
        answer = self.server.complete(prompt="count me", max_tokens=5, n=2, ignore_eos=True)
        self.assertEqual(answer["usage"]["completion_tokens"], 10)
        self.assertEqual(metric("generation_tokens_total") - before, 10)
        self.assertEqual(metric("time_to_first_token_seconds_count") - first, 2)
        self.assertGreater(metric("request_success_total"), 0)
        self.assertEqual(metric("kv_cache_usage_perc"), 0)
        for status, data, more in [(413, "x" * 200000, {}), (431, "", {"X-Long": "a" * 30000})]:
            before = metric("http_responses_total", f'status="{status}"')
            self.assertEqual(
                self.server.request("POST", "/v1/completions", data, more)[0], status)
            self.assertEqual(metric("http_responses_total", f'status="{status}"') - before, 1)

    def test_status_page_has_no_outside_resources(self):
        status, page, headers = self.server.request("GET", "/")
        self.assertEqual(status, 200)
        self.assertTrue(headers["Content-Type"].startswith("text/html"))
        for word in ("http:", "https:", "src=", "<link", "@import", "url("):
            self.assertNotIn(word, page)
        state = self.server.status()
        self.assertTrue(state["ready"])
        self.assertEqual(len(state["ranks"]), 1)


class LongAnswers(unittest.TestCase):
    """Requests that run until the test ends them."""

    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.server = cls.enterClassContext(served.Served(
            None, arguments=[*served.endless_model(pathlib.Path(folder)), "--max-waiting", "4"]))

    def test_too_many_get_429_with_retry_after(self):
        connections = []
        try:
            for _ in range(4):
                connection = http.client.HTTPConnection("127.0.0.1", self.server.port)
                connection.request("POST", "/v1/completions",
                                   json.dumps(dict(ENDLESS, stream=True)))
                connection.getresponse().fp.readline()  # it runs
                connections.append(connection)
            status, answer, headers = self.server.request("POST", "/v1/completions", ENDLESS)
            self.assertEqual((status, answer["error"]["code"]), (429, 429))
            self.assertEqual(headers["Retry-After"], "1")
        finally:
            for connection in connections:
                connection.close()
        self.server.wait_until_idle()
        self.assertEqual(
            self.server.request("POST", "/v1/completions", dict(ENDLESS, max_tokens=2))[0], 200)

    def test_a_disconnect_ends_a_request_that_is_not_streamed(self):
        with socket.create_connection(("127.0.0.1", self.server.port)) as client:
            body = json.dumps(dict(ENDLESS, n=4))
            client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
                           f"\r\n\r\n{body}".encode())
            self.server.wait_until_running()
        self.server.wait_until_idle()


class RankStates(unittest.TestCase):
    """Of /status, which the status page shows."""

    def test_they_say_what_each_rank_does(self):
        with tempfile.TemporaryDirectory() as folder:
            with served.Served(None, ranks=2, arguments=[
                    *served.endless_model(pathlib.Path(folder)), "--step-timeout", "0"]) as server:
                states = lambda: [rank["state"] for rank in server.status()["ranks"]]
                served.wait_until(lambda: states() == ["idle"] * 2, "idle ranks")
                with socket.create_connection(("127.0.0.1", server.port)) as client:
                    body = json.dumps(ENDLESS)
                    client.sendall("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: "
                                   f"{len(body)}\r\n\r\n{body}".encode())
                    served.wait_until(lambda: states()[0] == "running", "running ranks")
                served.wait_until(lambda: states() == ["idle"] * 2, "idle ranks")


class Life(unittest.TestCase):
    def drain(self, ranks):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        with served.Served(None, ranks=ranks, arguments=served.endless_model(folder)) as server:
            answers = []
            worker = threading.Thread(target=lambda: answers.append(
                server.request("POST", "/v1/completions", dict(ENDLESS, max_tokens=500, n=3))))
            worker.start()
            server.wait_until_running()
            server.signal(signal.SIGTERM)
            served.wait_until(lambda: server.status()["draining"], "the server drains")
            try:
                status, answer, headers = server.request("POST", "/v1/completions", LONG)
                self.assertEqual((status, headers["Retry-After"]), (503, "1"), answer)
            except ConnectionError:
                pass  # all was finished already
            worker.join()
            self.assertEqual(answers[0][0], 200)
            ends = [choice["finish_reason"] for choice in answers[0][1]["choices"]]
            self.assertEqual(ends, ["length"] * 3)
            self.assertEqual(server.wait(), 0)

    def test_sigterm_finishes_what_runs(self):
        self.drain(1)

    def test_sigterm_to_rank_0_ends_all_ranks(self):
        self.drain(3)

    def test_a_second_signal_stops(self):
        with served.Served(MODEL, arguments=["--max-num-seqs", "1"]) as server:
            answers = []
            worker = threading.Thread(target=lambda: answers.append(
                server.request("POST", "/v1/completions", dict(LONG, n=100))))
            worker.start()
            server.wait_until_running()
            server.signal(signal.SIGTERM)
            served.wait_until(lambda: server.status()["draining"], "the server drains")
            server.signal(signal.SIGTERM)
            worker.join()
            ends = {choice["finish_reason"] for choice in answers[0][1]["choices"]}
            self.assertIn("abort", ends)
            self.assertEqual(server.wait(), 0)

    def test_an_empty_key_or_body_limit_is_refused(self):
        for flag, value in {"--api-key": "", "--max-request-bytes": "0"}.items():
            run = subprocess.run([served.TANDEM, "serve", "--model", str(MODEL), "--port", "0", flag,
                                  value], capture_output=True, text=True, timeout=60)
            self.assertEqual((run.returncode, run.stderr.count("\n")), (2, 1), run.stderr)
            self.assertIn(flag, run.stderr)

    def test_a_port_in_use_is_one_sentence_before_anything_is_loaded(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            run = subprocess.run([served.TANDEM, "serve", "--model", str(MODEL), "--port",
                                  str(taken.getsockname()[1])], capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        self.assertIn("choose another --port", run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)


if __name__ == "__main__":
    unittest.main()
