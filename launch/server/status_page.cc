// SPDX-License-Identifier: Apache-2.0
#include "launch/server/status_page.h"

namespace tandem::launch {
namespace {

constexpr const char kPage[] = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tandem</title>
<style>
  :root { color-scheme: light dark; --ink: #16202c; --dim: #5d6b7a; --card: #fff; --page: #f2f4f7;
          --line: #d9dfe6; --good: #1a7f4b; --bad: #b3261e; --bar: #2f6fde; }
  @media (prefers-color-scheme: dark) {
    :root { --ink: #e6ebf1; --dim: #9aa7b5; --card: #1b232d; --page: #11171e; --line: #2c3744;
            --good: #4cc38a; --bad: #ff8a80; --bar: #6ea1ff; } }
  body { margin: 0; background: var(--page); color: var(--ink);
         font: 15px/1.45 system-ui, sans-serif; }
  main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem; }
  h1 { font-size: 1.3rem; margin: 0; }
  header { display: flex; justify-content: space-between; align-items: baseline; gap: 1rem;
           flex-wrap: wrap; }
  #state { font-weight: 600; }
  .dim { color: var(--dim); }
  .tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(16rem, 1fr));
           gap: .8rem; margin: 1.2rem 0; }
  .tile, table, .plot { background: var(--card); border: 1px solid var(--line);
                        border-radius: .5rem; }
  .tile { padding: .8rem 1rem; }
  .tile b { display: block; font-size: 1.6rem; font-variant-numeric: tabular-nums; }
  .plot { padding: .8rem 1rem; margin-bottom: 1.2rem; }
  svg { display: block; width: 100%; height: 7rem; }
  .bar { height: .5rem; background: var(--line); border-radius: .25rem; margin-top: .4rem;
         overflow: hidden; position: relative; }
  .bar i { position: absolute; inset: 0 auto 0 0; background: var(--bar); }
  .bar i.mapped { opacity: .35; }
  table { border-collapse: collapse; width: 100%; }
  th, td { text-align: left; padding: .45rem 1rem; border-top: 1px solid var(--line); }
  tr:first-child th { border-top: 0; }
</style>
</head>
<body>
<main>
<header><h1>Tandem <span id="model" class="dim"></span></h1><span id="state">connecting</span></header>
<div class="tiles">
  <div class="tile">requests running<b id="running">-</b></div>
  <div class="tile">requests waiting<b id="waiting">-</b></div>
  <div class="tile">output tokens/s<b id="rate">-</b></div>
  <div class="tile">prompt tokens/s<b id="prefill">-</b></div>
  <div class="tile">KV cache in use<b id="kv">-</b>
    <div class="bar"><i class="mapped" id="kvmapped"></i><i id="kvused"></i></div>
    <span class="dim" id="kvtext"></span></div>
  <div class="tile">prefix reuse<b id="prefix">-</b></div>
</div>
<div class="plot">output tokens/s, last two minutes <span class="dim" id="peak"></span>
  <svg viewBox="0 0 120 40" preserveAspectRatio="none" role="img" aria-label="tokens per second">
    <polyline id="line" fill="none" stroke="var(--bar)" stroke-width="2"
              vector-effect="non-scaling-stroke"></polyline></svg></div>
<table><thead><tr><th>rank</th><th>host</th><th>device</th><th>state</th></tr></thead>
<tbody id="ranks"></tbody></table>
<p class="dim" id="foot"></p>
</main>
<script>
const at = id => document.getElementById(id);
const text = (id, value) => { at(id).textContent = value; };
const rates = [];
let before = null;
function show(s) {
  text('state', s.draining ? 'shutting down' : s.ready ? 'ready' : 'loading');
  at('state').style.color = s.ready && !s.draining ? 'var(--good)' : 'var(--bad)';
  if (!s.ready) return;
  text('model', s.model);
  text('running', s.running);
  text('waiting', s.waiting);
  const used = s.kv_used_chunks / s.kv_max_chunks, mapped = s.kv_mapped_chunks / s.kv_max_chunks;
  text('kv', (100 * used).toFixed(1) + ' %');
  text('kvtext', 'memory mapped: ' + (100 * Math.min(mapped, 1)).toFixed(0) + ' % of the limit');
  at('kvused').style.width = 100 * used + '%';
  at('kvmapped').style.width = 100 * Math.min(mapped, 1) + '%';
  text('prefix', s.prefix_queries_tokens
      ? (100 * s.prefix_hits_tokens / s.prefix_queries_tokens).toFixed(0) + ' %' : '-');
  if (before) {
    const seconds = s.uptime_s - before.uptime_s;
    const rate = (s.generated_tokens - before.generated_tokens) / seconds;
    text('rate', rate.toFixed(0));
    text('prefill', ((s.prefill_tokens - before.prefill_tokens) / seconds).toFixed(0));
    rates.push(rate);
    if (rates.length > 120) rates.shift();
    const peak = Math.max(...rates, 1);
    text('peak', '(peak ' + peak.toFixed(0) + ')');
    at('line').setAttribute('points', rates.map((r, i) =>
        (120 - rates.length + i + .5) + ',' + (39 - 37 * r / peak)).join(' '));
  }
  before = s;
  at('ranks').replaceChildren(...s.ranks.map((r, i) => {
    const row = document.createElement('tr');
    for (const cell of [i, r.host, r.device, r.state]) {
      const td = document.createElement('td');
      td.textContent = cell;
      row.append(td);
    }
    return row;
  }));
  text('foot', s.version + ' · up ' + Math.round(s.uptime_s) + ' s · ' + s.steps + ' steps · ' +
      s.generated_tokens + ' tokens · host time of a step p50 ' +
      s.step_host_us.p50.toFixed(0) + ' µs, p99 ' + s.step_host_us.p99.toFixed(0) + ' µs · ' + s.preemptions + ' preemptions');
}
async function poll() {
  try {
    const answer = await fetch('status', {cache: 'no-store'});
    show(await answer.json());
  } catch (error) {
    text('state', 'unreachable');
    at('state').style.color = 'var(--bad)';
  }
  setTimeout(poll, 1000);
}
poll();
</script>
</body>
</html>
)html";

}  // namespace

std::string status_page() { return kPage; }

}  // namespace tandem::launch
