#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tandem waits`, `--waits` and `waits compare` as people use them: rows add up to the step, files
are what they say, wrong use ends in one sentence."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

TANDEM = os.environ["TANDEM"]
SOURCE = pathlib.Path(os.environ["TANDEM_SOURCE"])
MODEL = SOURCE / "tests/fixtures/models/llama-9q3kv"
MPIRUN = SOURCE / "tests/support/mpirun.sh"
ROWS = ["compute_at_ceiling", "compute_above_ceiling", "waiting_for_tiles", "fences", "transfer",
        "rank_skew", "launch_gaps", "allocation_and_mapping", "host", "idle", "unexplained"]


def run(*arguments, ranks=2, ok=True):
    command = ["bash", str(MPIRUN), str(ranks), TANDEM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (done.returncode == 0) == ok, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def check_report(report, ranks):
    assert report["waits"] == 1 and len(report["ranks"]) == ranks
    assert {phase["kind"] for phase in report["phases"]} == {"decode", "prefill"}
    for phase in report["phases"]:
        assert len(phase["ranks"]) == ranks and phase["steps"] >= 1
        for rank in phase["ranks"]:
            assert [row["row"] for row in rank["rows"]] == ROWS
            total = sum(row["mean_us"] for row in rank["rows"])
            assert abs(total - rank["step_us"]["mean"]) < 1e-3 * total, (total, rank["step_us"])
            causes = sum(cause["mean_us"] for cause in rank["causes"])
            assert abs(causes - total) < 1e-3 * total
            ordered = [cause["mean_us"] for cause in rank["causes"]]
            assert ordered == sorted(ordered, reverse=True)
    decode = next(phase for phase in report["phases"] if phase["kind"] == "decode")
    for rank in decode["ranks"]:
        rows = {row["row"]: row["median_us"] for row in rank["rows"]}
        assert rows["unexplained"] <= 0.05 * rank["step_us"]["median"], rank
        assert rows["compute_at_ceiling"] > 0 and rows["transfer"] > 0


def check_files(folder, ranks):
    report = json.loads((folder / "a.json").read_text())
    check_report(report, ranks)
    picture = ElementTree.parse(folder / "a.svg").getroot()
    text = " ".join(picture.itertext())
    for word in ["decode", "prefill", *(f"rank {r}" for r in range(ranks))]:
        assert word in text, word
    events = json.loads((folder / "a.trace.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {span["pid"] for span in spans} == set(range(ranks))
    assert all(span["dur"] >= 0 for span in spans)
    # The same all-reduce ends on all ranks at about the same time: one time axis.
    ends = {rank: [span["ts"] + span["dur"] for span in spans
                   if span["pid"] == rank and span["name"] == "all_reduce"]
            for rank in range(ranks)}
    assert len(ends[0]) == len(ends[1]) > 0
    apart = sorted(abs(a - b) for a, b in zip(ends[0], ends[1]))
    step = next(p for p in report["phases"] if p["kind"] == "decode")["ranks"][0]["step_us"]
    assert apart[len(apart) // 2] < max(step["median"], 5000), (apart[len(apart) // 2], step)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    common = ["--model", str(MODEL), "--device", "cpu", "--threads", "1", "--dtype", "float32"]
    done = run("waits", *common, "--output-len", "24", "--waits", str(folder / "a.json"))
    assert "what would help" in done.stdout and "unexplained" in done.stdout, done.stdout
    check_files(folder, 2)

    done = run("generate", *common, "--prompt", "Hello", "--max-tokens", "12", "--ignore-eos",
               "--json", "--waits", str(folder / "b.json"))
    assert json.loads(done.stdout)["outputs"], "the answer alone is on standard output"
    assert "what would help" in done.stderr
    check_report(json.loads((folder / "b.json").read_text()), 2)

    done = run("waits", "compare", str(folder / "a.json"), str(folder / "b.json"), ranks=1)
    assert done.stdout.startswith("decode") and "step" in done.stdout, done.stdout

    # What was unequal is said.
    done = run("waits", *common, "--output-len", "8", "--batch-size", "2", "--waits",
               str(folder / "c.json"), ranks=1)
    done = run("waits", "compare", str(folder / "a.json"), str(folder / "c.json"), ranks=1)
    assert "ranks before: 2, after: 1" in done.stdout, done.stdout
    assert "a decode step before: 1 row, after: 2 rows" in done.stdout, done.stdout
    other = json.loads((folder / "c.json").read_text())
    other["model"] = "another"
    (folder / "d.json").write_text(json.dumps(other))
    done = run("waits", "compare", str(folder / "c.json"), str(folder / "d.json"), ranks=1)
    assert "model before: " in done.stdout and "after: another" in done.stdout, done.stdout
    assert "step before: " not in done.stdout, done.stdout
    other["phases"][0]["ranks"] = []
    (folder / "d.json").write_text(json.dumps(other))
    done = run("waits", "compare", str(folder / "c.json"), str(folder / "d.json"), ok=False, ranks=1)
    assert "is no report of waits" in done.stderr, done.stderr

    # The report is not written where its picture or its trace would be, and nothing is lost.
    before = (folder / "a.svg").read_bytes()
    for name in ["a.svg", "a.trace.json"]:
        done = run("waits", *common, "--waits", str(folder / name), ok=False)
        assert f"use --waits {folder / 'a.json'}" in done.stderr, done.stderr
    assert (folder / "a.svg").read_bytes() == before

    done = run("waits", "compare", str(folder / "a.json"), ok=False, ranks=1)
    assert "needs two reports" in done.stderr
    done = run("waits", "compare", str(folder / "a.json"), str(folder / "a.svg"), ok=False, ranks=1)
    assert "is no report of waits" in done.stderr, done.stderr
    done = run("waits", *common, "--waits", str(folder / "no/such/place.json"), ok=False)
    assert "cannot be written" in done.stderr and done.stderr.count("tandem:") == 1, done.stderr
print("waits: ok")
sys.exit(0)
