// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/domains_cuda/domains_lab.h"

#include <algorithm>

namespace tandem::bench {

DomainsLab::DomainsLab(Context<Cuda>& ctx)
    : ctx_(ctx),
      aggressor_stream_(Stream<Cuda>::Priority::kNormal, {true, 0, 1}),
      flags_(2),
      traces_(kMaxBlocks + 1),
      host_traces_(kMaxBlocks + 1),
      one_(1) {
  one_[0] = 1;
}

void DomainsLab::set_aggressor_domain(Cell cell, int victim_domain) {
  const int domain = cell == Cell::kSeparate ? 1 - victim_domain : victim_domain;
  aggressor_stream_.set_domain({true, 0, static_cast<unsigned char>(domain)});
}

void DomainsLab::start(const Aggressor& aggressor) {
  aggressor_begin_.record(aggressor_stream_);
  if (aggressor.enqueue) {
    aggressor.enqueue(aggressor_stream_);
  } else {
    launch_aggressor(aggressor_stream_,
                     {aggressor.traffic, aggressor.blocks, aggressor.memory, aggressor.block_units,
                      flags_.data(), flags_.data() + 1, traces_.data()});
  }
  aggressor_end_.record(aggressor_stream_);
}

Sample DomainsLab::measure(const Victim& victim, const Aggressor& aggressor, Cell cell) {
  fill_zero(ctx_, flags_.data(), flags_.size_bytes());
  fill_zero(ctx_, traces_.data(), traces_.size_bytes());
  ctx_.compute().synchronize();
  const bool beside = cell != Cell::kIdle;
  if (beside) {
    set_aggressor_domain(cell, victim.domain);
    start(aggressor);
  }
  launch_gate(ctx_, flags_.data(), beside ? aggressor.blocks : 0);
  begin_.record(ctx_.compute());
  victim.enqueue();
  end_.record(ctx_.compute());
  end_.synchronize();
  Sample sample;
  sample.overlapped = !beside || !aggressor_end_.done();
  copy_to_device(ctx_.copy(), flags_.data() + 1, one_.data(), one_.size_bytes());
  aggressor_stream_.synchronize();
  sample.value = victim.read(static_cast<double>(end_.milliseconds_since(begin_)));
  if (!beside) return sample;
  if (aggressor.enqueue)
    sample.aggressor_gb_per_s =
        aggressor.enqueued_bytes /
        (1e6 * static_cast<double>(aggressor_end_.milliseconds_since(aggressor_begin_)));
  else
    judge_blocks(victim, aggressor, sample);
  return sample;
}

void DomainsLab::judge_blocks(const Victim& victim, const Aggressor& aggressor, Sample& sample) {
  copy_to_host(ctx_, host_traces_.data(), traces_.data(), traces_.size_bytes());
  ctx_.compute().synchronize();
  const BlockTrace& own = host_traces_[kMaxBlocks];
  for (int block = 0; block < aggressor.blocks; ++block) {
    const BlockTrace& trace = host_traces_[block];
    const auto ns = static_cast<double>(std::max<std::uint64_t>(1, trace.end_ns - trace.begin_ns));
    sample.aggressor_gb_per_s +=
        static_cast<double>(trace.iterations) * kAggressorThreads * sizeof(uint4) / ns;
    if (!victim.traced) continue;
    sample.overlapped &= trace.begin_ns <= own.begin_ns && trace.end_ns >= own.end_ns;
    sample.apart &= trace.sm != own.sm;
  }
}

}  // namespace tandem::bench
