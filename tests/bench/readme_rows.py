# SPDX-License-Identifier: Apache-2.0
"""Committed results as rows of text: what readme_results.py and readme_headline.py share."""
import json


def load(folder):
    """Documents by file name, in order of names."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def of_bench(documents, *names):
    return [document for document in documents.values() if document["bench"] in names]


def by_case(document):
    """Rows by case, then by metric."""
    cases = {}
    for row in document["rows"]:
        cases.setdefault(row["case"], {})[row["metric"]] = row
    return cases


def cases_with(document, metric):
    return [(case, found) for case, found in by_case(document).items() if metric in found]


def number(value):
    """Three digits that count, never an exponent."""
    if value == 0:
        return "0"
    digits = max(0, 2 - len(str(int(abs(value)))) + 1) if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"


def percent(value):
    return "" if value is None else f"{100 * value:.0f} %"


def machine_of(document):
    machine = document["machine"]
    return f'{machine["gpus"]} x {machine["gpu"]}' if machine["gpu"] else machine["cpu"]


def origin(document):
    machine = document["machine"]
    where = machine_of(document)
    if machine["gpu"]:
        where += f', CUDA {machine["cuda"]}'
        if machine.get("nccl"):
            where += f', NCCL {machine["nccl"]}'
    elif "threads" in document.get("work", {}):
        where += f', {plural(document["work"]["threads"], "thread")} a rank'
    return f'{where}; commit {document["commit"]}, {document["date"]}; `{document["command"]}`'


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def plural(count, word):
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def short_machine(document):
    return machine_of(document).replace("NVIDIA ", "")
