#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""expression_seeds.py FOLDER: each template of fixtures/templates/expressions.json as a file."""
import json
import pathlib
import sys

table = pathlib.Path(__file__).resolve().parent.parent / "fixtures/templates/expressions.json"
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for number, case in enumerate(json.loads(table.read_text(encoding="utf-8"))["cases"]):
    (folder / str(number)).write_text(case["template"], encoding="utf-8")
