#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the rates that `bench serve` tried with prefix reuse off and on, and how much reuse raises
the rate that holds: mooncake_ratio.py OFF.json ON.json [BOTH.json COMMAND]. The ratio is known
between two bounds; the lower one is what was shown. BOTH.json gets the rows of both and the bounds.
"""

import json
import sys


def summary(document):
    """(document, values of each case, highest rate held or 0, lowest missed or None)"""
    cases, held, missed = {}, 0.0, None
    for row in document["rows"]:
        if row["metric"] == "highest_rate_held":
            held = row["value"]
        elif row["metric"] == "lowest_rate_missed":
            missed = row["value"]
        else:
            cases.setdefault(row["case"], {})[row["metric"], row["statistic"]] = row["value"]
    return document, cases, held, missed


def cells(case, values):
    """Of a table: case, p99 TTFT and TPOT, running, reused, held or missed."""
    def shown(metric, statistic, digits=1, scale=1, unit=""):
        value = values.get((metric, statistic))
        return "" if value is None else f"{scale * value:.{digits}f}{unit}"

    held = values["objectives_held", "mean"]
    return [case, shown("ttft_ms", "p99"), shown("tpot_ms", "p99"), shown("mean_running", "mean"),
            shown("prompt_tokens_reused", "mean", 0, 100, " %"),
            "held" if held else "ended early: missed" if ("abandoned", "mean") in values else "missed"]


HEAD = ["case", "p99 TTFT ms", "p99 TPOT ms", "running", "prompt tokens reused", "objectives"]


def main(off, on, both=None, command=""):
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    (document, off_cases, off_held, off_missed), (_, on_cases, on_held, on_missed) = (summary(json.load(open(path))) for path in (off, on))
    for case, values in {**off_cases, **on_cases}.items():
        print("| " + " | ".join(cells(case, values)) + " |")
    print(f"reuse off holds {off_held:.3g} requests/s and misses {off_missed},"
          f" on holds {on_held:.3g} and misses {on_missed}")
    bounds = []
    if off_missed and on_held:
        bounds.append(("rate_raised_at_least", on_held / off_missed, "min"))
        print(f"reuse raises the rate by at least {bounds[-1][1]:.2f}x")
    if off_held and on_missed:
        bounds.append(("rate_raised_at_most", on_missed / off_held, "max"))
        print(f"and by less than {bounds[-1][1]:.2f}x")
    if both is None:
        return
    document.update(bench="mooncake_reuse", command=command)
    document["rows"] += json.load(open(on))["rows"]
    document["rows"] += [{"case": "reuse-on over reuse-off", "metric": metric, "unit": "ratio",
                          "statistic": statistic, "runs": 1, "value": round(value, 4), "spread": 0,
                          "ceiling": None, "share": None} for metric, value, statistic in bounds]
    rows = document.pop("rows")
    with open(both, "w") as file:
        file.write(json.dumps(document, separators=(",", ":"))[:-1] + ',"rows":[\n')
        file.write(",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
