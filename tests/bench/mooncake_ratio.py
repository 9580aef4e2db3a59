#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the rates that `bench serve` tried with prefix reuse off and on, and how much reuse raises
the rate that holds: mooncake_ratio.py OFF.json ON.json. Held on a grid, the ratio is known between
two bounds; the lower one is what was shown."""

import json
import sys


def load(path):
    """(rows by case, highest rate held or 0, lowest missed or None)"""
    cases, held, missed = {}, 0.0, None
    for row in json.load(open(path))["rows"]:
        if row["metric"] == "highest_rate_held":
            held = row["value"]
        elif row["metric"] == "lowest_rate_missed":
            missed = row["value"]
        else:
            cases.setdefault(row["case"], {})[row["metric"], row["statistic"]] = row["value"]
    return cases, held, missed


def shown(values, metric):
    value = values.get((metric, "p99"))
    return "ended" if value is None else f"{value:.1f}"


def main(off, on):
    print("| case | p99 TTFT ms | p99 TPOT ms | running | prompt tokens reused | |")
    print("|---|---|---|---|---|---|")
    found = [load(off), load(on)]
    for cases, _, _ in found:
        for case, values in cases.items():
            running = values.get(("mean_running", "mean"))
            reused = values.get(("prompt_tokens_reused", "mean"))
            print(f"| {case} | {shown(values, 'ttft_ms')} | {shown(values, 'tpot_ms')} |"
                  f" {'' if running is None else f'{running:.1f}'} |"
                  f" {'' if reused is None else f'{100 * reused:.0f} %'} |"
                  f" {'held' if values[('objectives_held', 'mean')] else 'missed'} |")
    (_, off_held, off_missed), (_, on_held, on_missed) = found
    print(f"reuse off holds {off_held:.3g} requests/s and misses {off_missed},"
          f" on holds {on_held:.3g} and misses {on_missed}")
    if off_missed and on_held:
        print(f"reuse raises the rate by at least {on_held / off_missed:.2f}x")
    if off_held and on_missed:
        print(f"and by less than {on_missed / off_held:.2f}x")


if __name__ == "__main__":
    main(*sys.argv[1:])
