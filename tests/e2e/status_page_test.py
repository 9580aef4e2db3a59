# SPDX-License-Identifier: Apache-2.0
"""The status page in headless Chromium, while answers are made. `SCREENSHOT` names a PNG to look at."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import served  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def browse(url, *arguments):
    with tempfile.TemporaryDirectory() as profile:
        run = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
             "--window-size=1000,760", "--virtual-time-budget=4000", *arguments, url],
            capture_output=True, text=True, timeout=240)
    return run.stdout


@unittest.skipUnless(CHROMIUM, "needs chromium")
class StatusPage(unittest.TestCase):
    def test_it_shows_the_running_server(self):
        with served.Served(served.MODELS / "llama-9q3kv", ranks=2) as server:
            server.complete(prompt=[5] * 130, max_tokens=3)
            server.complete(prompt=[5] * 130, max_tokens=3)
            stop = threading.Event()

            def ask():
                while not stop.is_set():
                    server.complete(prompt=[7, 8], max_tokens=60, ignore_eos=True, n=3)

            client = threading.Thread(target=ask)
            client.start()
            try:
                page = browse(f"http://127.0.0.1:{server.port}/", "--dump-dom")
                if "SCREENSHOT" in os.environ:
                    browse(f"http://127.0.0.1:{server.port}/",
                           f"--screenshot={os.environ['SCREENSHOT']}")
            finally:
                stop.set()
                client.join()
        cell = lambda name: re.search(rf'id="{name}"[^>]*>([^<]*)<', page).group(1)
        self.assertEqual(cell("state"), "ready")
        self.assertEqual(cell("model"), "llama-9q3kv")
        self.assertRegex(cell("rate"), r"^\d+")
        self.assertRegex(cell("kv"), r"^\d+\.\d %$")
        self.assertRegex(cell("prefix"), r"^\d+ %$")
        self.assertEqual(page.count("cpu (1 thread)"), 2)
        self.assertEqual(len(re.findall(r'<polyline[^>]*points="[^"]+', page)), 1)


if __name__ == "__main__":
    unittest.main()
