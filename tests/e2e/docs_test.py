#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands of README.md, launch/README.md and CONTRIBUTING.md are real: what CPU ranks can run
is run, of all others the programs, files, sub-commands and flags must exist."""

import json
import pathlib
import re
import shlex
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import program  # noqa: E402

ROOT = program.SOURCE
DOCUMENTS = ["README.md", "launch/README.md", "CONTRIBUTING.md"]
# What a reader puts in.
PLACEHOLDERS = {"MODEL": str(program.MODELS / "llama-9q3kv"), "TEXT": "The quick brown fox",
                "DIR": str(program.MODELS / "llama-9q3kv"), "...": None}
# Flags that belong to other programs, by what comes before them in the text or in the command.
FOREIGN = re.compile(r"^(srun|sbatch|scancel|docker|mpirun|cmake|ctest|nsys|hostnamectl|hf|ssh|"
                     r"pip|apt-get|openssl|curl|compute-sanitizer)$")
FOREIGN_FLAGS = {"--gpus-per-task", "--gpus-per-node", "--ntasks-per-node", "--kill-on-bad-exit",
                 "--mpi", "--mca", "--oversubscribe", "--bind-to", "--ipc", "--shm-size",
                 "--ulimit", "--hostname", "--signal", "--preset", "--time",
                 "--tool", "--gtest"}
QUICKSTART_FLAGS = {"--ranks"}


def commands(text):
    """Lines of fenced bash blocks, and code spans that look like a command."""
    fenced = re.findall(r"^ *```bash\n(.*?)^ *```", text, re.S | re.M)
    for block in fenced:
        for line in block.replace("\\\n", " ").splitlines():
            line = line.split(" #")[0].strip()
            if line and not line.startswith("#"):
                yield line
    outside = re.sub(r"^ *```.*?^ *```", "", text, flags=re.S | re.M)
    for span in re.findall(r"`([^`]+)`", outside):
        span = " ".join(span.split())
        if re.match(r"(\w+=\S+ )*(bash|mpirun|srun|sbatch|python3|cmake|ctest|(build/)?tandem|"
                    r"(launch|tests)/\S+\.sh)( |$)", span):
            yield span


def spans(text):
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]


class Help:
    """Flags of every sub-command, from its own help."""

    def __init__(self):
        self.overview = program.run("--help").text()
        self.job_flags = set(re.findall(r"^  (--[a-z-]+)", self.overview, re.M))
        self.names = re.findall(r"^  ([a-z]+)  +", self.overview.split("options of every")[0], re.M)
        self.cache = {}

    def flags(self, *names):
        if names not in self.cache:
            done = program.run(*names, "--help")
            assert done.code == 0, f"tandem {' '.join(names)} --help: {done.log()}"
            self.cache[names] = set(re.findall(r"(--[a-z0-9-]+)", done.text()))
        return self.cache[names] | self.job_flags | {"--help", "--version"}

    def all_flags(self):
        found = set(self.job_flags) | {"--help", "--version"}
        for name in self.names:
            found |= self.flags(name)
            shown = program.run(name, "--help").text()
            for inner in re.findall(r"^  ([a-z]+) ", shown, re.M) if name == "bench" else []:
                found |= self.flags(name, inner)
        return found


class Docs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.help = Help()
        # Tables of results name commands of the commits and machines that they come from.
        cls.texts = {name: re.sub(r"<!-- results:.*?<!-- results end -->", "",
                                  (ROOT / name).read_text(), flags=re.S) for name in DOCUMENTS}
        cls.commands = [(name, line) for name, text in cls.texts.items() for line in commands(text)]

    def tandem_words(self, line):
        """The arguments of `tandem` in a command line, or None."""
        words = shlex.split(line)
        for at, word in enumerate(words):
            if word == "tandem" or word.endswith("/tandem"):
                return words[at + 1:]
            if word == "launch/mpirun/run.sh" and "--" in words:
                return words[words.index("--") + 1:]
        return None

    def check_words(self, words):
        if not words or words[0].startswith("-") or words[0] == "...":
            return
        self.assertIn(words[0], self.help.names + ["COMMAND"], "no such command")
        if words[0] == "COMMAND" or words[1:2] == ["..."]:
            return
        if words[0] == "launch":
            at = words.index("--") if "--" in words else len(words)
            self.check_words(words[at + 1:])
            words = words[:at]
        names = words[:2] if words[0] == "bench" and len(words) > 1 and words[1].isalpha() \
            else words[:1]
        for word in words:
            if word.startswith("--") and word != "--":
                self.assertIn(word.split("=")[0], self.help.flags(*names),
                              f"tandem {' '.join(names)} has no such flag")

    def test_sub_commands_and_flags_exist(self):
        self.assertGreater(len(self.commands), 10)
        for document, line in self.commands:
            with self.subTest(document=document, line=line):
                words = self.tandem_words(line)
                if words is not None:
                    self.check_words(words)

    def test_programs_and_files_exist(self):
        presets = {preset["name"] for preset in
                   json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
        tests_cmake = (ROOT / "tests/CMakeLists.txt").read_text()
        for document, line in self.commands:
            with self.subTest(document=document, line=line):
                for before, word in zip([""] + shlex.split(line), shlex.split(line)):
                    if before == "--preset":
                        self.assertIn(word, presets)
                    if re.fullmatch(r"(launch|tests|cluster_configs)/[\w./-]+\.\w+", word):
                        self.assertTrue((ROOT / word).exists(), f"{word} is not there")
                    elif re.fullmatch(r"build/\w+", word) and word != "build/tandem":
                        self.assertTrue(list(ROOT.glob(f"tests/*/{word[6:]}.cc")) or
                                        f"add_executable({word[6:]} " in tests_cmake,
                                        f"{word} is built from nothing")

    def test_flags_named_in_the_text_exist(self):
        known = self.help.all_flags() | FOREIGN_FLAGS | QUICKSTART_FLAGS
        for document, text in self.texts.items():
            outside = re.sub(r"^ *```.*?^ *```", "", text, flags=re.S | re.M)
            for span in spans(outside):
                if FOREIGN.match(span.split()[0]) and "tandem" not in span:
                    continue
                for flag in re.findall(r"(?:^| )(--[a-z][a-z0-9-]*)", span):
                    with self.subTest(document=document, span=span):
                        self.assertIn(flag, known)

    def test_shell_scripts_parse(self):
        for script in {word for _, line in self.commands for word in shlex.split(line)
                       if word.endswith((".sh", ".sbatch")) and (ROOT / word).exists()}:
            done = program.run("-n", str(ROOT / script), program="bash")
            self.assertEqual(done.code, 0, done.log())

    def test_what_cpu_ranks_can_run_runs(self):
        ran = set()
        for document, line in self.commands:
            words = self.tandem_words(line)
            if words is None or words[:1] == ["COMMAND"] or line.startswith(("sbatch", "srun")):
                continue
            if not words or any(w == "..." or w.isupper() and w not in PLACEHOLDERS for w in words):
                continue
            if words[0] in ("serve", "chat", "bench"):  # they have tests of their own
                continue
            if words[:2] == ["waits", "compare"] or "--check" in words:  # so have these, with files
                continue
            if words == ["plan"] or "--doctor" in words:  # named, or of a result with its files
                continue
            ranks = int(re.search(r"mpirun -n (\d+)", line).group(1)) if "mpirun -n" in line else 1
            words = [PLACEHOLDERS.get(word, word) for word in words]
            if words[0] == "launch" and "--dry-run" not in words:
                words.insert(1, "--dry-run")
            if words[0] == "generate":
                words += ["--max-tokens", "4", "--device", "cpu"]
            key = (ranks, *words)
            if key in ran:
                continue
            ran.add(key)
            with self.subTest(document=document, line=line):
                done = program.run(*[str(ROOT / word) if word.startswith("cluster_configs/")
                                     else word for word in words], ranks=ranks, seconds=400)
                good = (0, 1) if words[0] == "doctor" else (0,)  # 1: something of the host is red
                self.assertIn(done.code, good, done.log() + done.text())
        self.assertGreater(len(ran), 2, ran)


if __name__ == "__main__":
    unittest.main()
