#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the results of domains_bench: one row per victim and aggressor with three bars (idle, same
domain, separate domains) on a logarithmic axis, and the share removed where an effect was seen.
Usage: domains_svg.py results.json > domains.svg"""
import html
import json
import math
import sys

CELLS = [("idle", "#9aa5b1"), ("same_domain", "#c2410c"), ("separate_domains", "#0f766e")]
LEFT, WIDTH, BAR, ROW = 400, 460, 7, 34


def by_case(rows):
    """{case: {metric: row}} of the pairs, in file order."""
    cases = {}
    for row in rows:
        cases.setdefault(row["case"], {})[row["metric"]] = row
    return {name: metrics for name, metrics in cases.items() if "same_domain" in metrics}


def draw(results):
    cases = by_case(results["rows"])
    values = [metrics[cell]["value"] for metrics in cases.values() for cell, _ in CELLS]
    low = math.floor(math.log10(max(min(values), 1e-3)))
    high = math.ceil(math.log10(max(values)))

    def x(value):
        return LEFT + WIDTH * (math.log10(max(value, 10.0 ** low)) - low) / max(high - low, 1)

    height = 60 + ROW * len(cases) + 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 190}" height="{height}"'
           ' font-family="sans-serif" font-size="11">',
           f'<rect width="100%" height="100%" fill="white"/><text x="10" y="18" font-size="14">'
           f'Memory synchronization domains on {html.escape(results["machine"]["gpu"])}</text>']
    for i, (cell, color) in enumerate(CELLS):
        out.append(f'<rect x="{LEFT + 150 * i}" y="28" width="10" height="10" fill="{color}"/>'
                   f'<text x="{LEFT + 150 * i + 14}" y="37">{cell.replace("_", " ")}</text>')
    for power in range(low, high + 1):
        out.append(f'<line x1="{x(10.0 ** power):.1f}" y1="46" x2="{x(10.0 ** power):.1f}" '
                   f'y2="{height - 16}" stroke="#e5e7eb"/><text x="{x(10.0 ** power):.1f}" '
                   f'y="{height - 4}" text-anchor="middle">{10.0 ** power:g}</text>')
    for i, (name, metrics) in enumerate(cases.items()):
        y = 56 + ROW * i
        out.append(f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{html.escape(name)} '
                   f'({html.escape(metrics["idle"]["unit"])})</text>')
        for j, (cell, color) in enumerate(CELLS):
            end = x(metrics[cell]["value"])
            out.append(f'<rect x="{LEFT}" y="{y + BAR * j}" width="{max(end - LEFT, 1):.1f}" '
                       f'height="{BAR}" fill="{color}"/><text x="{end + 3:.1f}" '
                       f'y="{y + BAR * j + BAR}" font-size="8">{metrics[cell]["value"]:.3g}</text>')
        removed = metrics.get("removed")
        note = f'removed {100 * removed["value"]:.0f} %' if removed else "no effect seen"
        out.append(f'<text x="{LEFT + WIDTH + 60}" y="{y + 14}">{note}</text>')
    return "\n".join(out + ["</svg>"])


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(draw(json.load(file)))
