#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tandem chat` as a person uses it: at a terminal, with Ctrl-C, under mpirun, and with a pipe."""
import json
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import tempfile
import termios
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import served  # noqa: E402

SOURCE = pathlib.Path(os.environ["TANDEM_SOURCE"])
TANDEM = os.environ["TANDEM"]
MODEL = SOURCE / "tests/fixtures/models/llama-9q3kv"
MPIRUN = [str(SOURCE / "tests/support/mpirun.sh"), "2"]
DEADLINE_S = 120


def endless_model(folder):
    return [*served.endless_model(folder), "--ignore-eos", "--max-tokens", "90000"]


class Terminal:
    """A program with a terminal of its own."""

    def __init__(self, command):
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(command, stdin=self.slave, stdout=self.slave,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        self.seen = b""

    def send(self, data):
        os.write(self.master, data)

    def wait_for(self, what, since):
        """Waits for a predicate over the output after offset `since`; returns that output."""
        end = time.monotonic() + DEADLINE_S
        while not what(self.seen[since:]):
            left = end - time.monotonic()
            if left <= 0 or self.process.poll() is not None:
                raise AssertionError(f"waited in vain; output: {self.seen[since:][-300:]!r}")
            if select.select([self.master], [], [], min(left, 0.2))[0]:
                self.seen += os.read(self.master, 65536)
        return self.seen[since:]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


class ChatTest(unittest.TestCase):
    def interrupt(self, launcher):
        with tempfile.TemporaryDirectory() as folder:
            terminal = Terminal(launcher + [TANDEM, "chat", "--device", "cpu"]
                                + endless_model(pathlib.Path(folder)))
            self.addCleanup(terminal.close)
            terminal.wait_for(lambda text: text.endswith(b"> "), 0)
            for message in (b"Hello\n", b'"""\nTwo\nlines\n"""\n'):
                start = len(terminal.seen)
                terminal.send(message)
                # The echo of the message, and then an answer that would go on for long.
                terminal.wait_for(lambda text: len(text) > len(message) + 60, start)
                stopped = len(terminal.seen)
                terminal.send(b"\x03")
                terminal.wait_for(lambda text: text.endswith(b"\n> "), stopped)
                self.assertIsNone(terminal.process.poll())
            start = len(terminal.seen)
            terminal.send(b"dropped\x03")  # Ctrl-C at the prompt drops the line only
            terminal.wait_for(lambda text: text.endswith(b"\n> "), start)
            terminal.send(b"/exit\n")
            self.assertEqual(terminal.process.wait(DEADLINE_S), 0)
            self.assertEqual(termios.tcgetattr(terminal.slave), terminal.before)

    def test_interrupt_stops_the_answer_only(self):
        self.interrupt([])

    def test_interrupt_under_mpirun(self):
        self.interrupt(MPIRUN)

    def run_piped(self, launcher, lines):
        command = launcher + [TANDEM, "chat", "--device", "cpu", "--model", str(MODEL),
                              "--max-tokens", "8", "--ignore-eos", "--temperature", "0"]
        done = subprocess.run(command, input="".join(line + "\n" for line in lines).encode(),
                              stdout=subprocess.PIPE, timeout=DEADLINE_S, check=True)
        return done.stdout

    def test_pipe_keeps_the_conversation(self):
        twice = self.run_piped([], ["Hi", "Hi"])
        cleared = self.run_piped([], ["Hi", "/clear", "Hi"])
        first, second = cleared.split(b"A new conversation.\n")
        self.assertTrue(first.strip())
        self.assertEqual(first, second)  # after /clear nothing is left of the first question
        self.assertTrue(twice.startswith(first))
        self.assertNotEqual(twice, first + second)  # without it the second answer knows the first
        self.assertEqual(self.run_piped(MPIRUN, ["Hi", "Hi"]), twice)
        generate = subprocess.run(
            [TANDEM, "generate", "--device", "cpu", "--model", str(MODEL), "--max-tokens", "8",
             "--ignore-eos", "--temperature", "0", "--chat", "--prompt", "Hi"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=DEADLINE_S, check=True)
        self.assertEqual(generate.stdout, first)

    def test_the_cache_is_kept_between_turns(self):
        lines = ["one " * 180, "Hi", "/clear", "Hi"]
        for launcher in ([], MPIRUN):
            command = launcher + [TANDEM, "chat", "--device", "cpu", "--model", str(MODEL),
                                  "--max-tokens", "8", "--ignore-eos", "--temperature", "0",
                                  "--verbose"]
            done = subprocess.run(command, input="".join(line + "\n" for line in lines),
                                  capture_output=True, text=True, errors="replace",
                                  timeout=DEADLINE_S, check=True)
            turns = [tuple(map(int, found)) for found in re.findall(
                r"(\d+) prompt tokens, (\d+) of them computed", done.stderr)]
            self.assertEqual(len(turns), 3, done.stderr)
            (first, all_of_it), (second, rest), (third, alone) = turns
            self.assertEqual(first, all_of_it)
            # What the first turn left is there in whole chunks of 64 tokens. (Its answer is no
            # proper text, so it comes back as other tokens.)
            self.assertGreater(second, first)
            self.assertGreater(first, 128)
            self.assertLessEqual(rest, second - first // 64 * 64)
            self.assertEqual(third, alone)  # shorter than a chunk


if __name__ == "__main__":
    unittest.main()
