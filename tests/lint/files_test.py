#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""House rules that a reader of the repository would trip over: length, licence line, marks."""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(os.environ.get("TANDEM_SOURCE", pathlib.Path(__file__).parents[2]))
SOURCES = {".h", ".cc", ".inl", ".cu", ".cuh"}
MAX_LINES = 400
TOP_LEVEL = {"CMakeLists.txt", "CMakePresets.json", "runtime", "parallel", "comm", "kernels",
             "kvcache", "launch", "tests", "cluster_configs", "README.md", "CONTRIBUTING.md",
             "LICENSE"}
MARKS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")


def tracked():
    listing = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True)
    if listing.returncode == 0 and listing.stdout:
        return [pathlib.Path(name) for name in listing.stdout.split("\n") if name]
    return [p.relative_to(ROOT) for p in ROOT.rglob("*") if p.is_file() and "build" not in p.parts[0]]


def faults():
    for path in tracked():
        if path.parts[0] not in TOP_LEVEL and not path.parts[0].startswith("."):
            yield f"{path}: does not belong at the top level"
        if path.suffix not in SOURCES or not (ROOT / path).exists():
            continue
        lines = (ROOT / path).read_text().splitlines()
        if len(lines) > MAX_LINES:
            yield f"{path}: {len(lines)} lines, more than {MAX_LINES}: split it by topic"
        if not lines or not lines[0].startswith("// SPDX-License-Identifier: Apache-2.0"):
            yield f"{path}: the first line must be // SPDX-License-Identifier: Apache-2.0"
        for number, line in enumerate(lines, 1):
            if MARKS.search(line):
                yield f"{path}:{number}: a mark of unfinished work"


found = list(faults())
print("\n".join(found) or "files: ok")
sys.exit(1 if found else 0)
