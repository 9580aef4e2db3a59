// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/domains_lab.h"

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

void DomainsLab::set_aggressor_domain(Cell cell) {
  aggressor_stream_.set_domain(
      {true, 0, static_cast<unsigned char>(cell == Cell::kSeparate ? 1 : 0)});
}

Sample DomainsLab::measure(const Victim& victim, const Aggressor& aggressor, Cell cell) {
  fill_zero(ctx_, flags_.data(), flags_.size_bytes());
  fill_zero(ctx_, traces_.data(), traces_.size_bytes());
  ctx_.compute().synchronize();
  const int blocks = cell == Cell::kIdle ? 0 : aggressor.blocks;
  if (blocks > 0) {
    set_aggressor_domain(cell);
    launch_aggressor(aggressor_stream_,
                     {aggressor.traffic, blocks, aggressor.memory, aggressor.block_units,
                      flags_.data(), flags_.data() + 1, traces_.data()});
  }
  launch_gate(ctx_, flags_.data(), blocks);
  begin_.record(ctx_.compute());
  victim.enqueue();
  end_.record(ctx_.compute());
  end_.synchronize();
  copy_to_device(ctx_.copy(), flags_.data() + 1, one_.data(), one_.size_bytes());
  aggressor_stream_.synchronize();
  Sample sample;
  sample.value = victim.read(static_cast<double>(end_.milliseconds_since(begin_)));
  if (blocks > 0) judge(aggressor, sample);
  return sample;
}

void DomainsLab::judge(const Aggressor& aggressor, Sample& sample) {
  copy_to_host(ctx_, host_traces_.data(), traces_.data(), traces_.size_bytes());
  ctx_.compute().synchronize();
  const BlockTrace& victim = host_traces_[kMaxBlocks];
  for (int block = 0; block < aggressor.blocks; ++block) {
    const BlockTrace& trace = host_traces_[block];
    const auto ns = static_cast<double>(std::max<std::uint64_t>(1, trace.end_ns - trace.begin_ns));
    sample.aggressor_gb_per_s +=
        static_cast<double>(trace.iterations) * kAggressorThreads * sizeof(uint4) / ns;
    sample.overlapped &= trace.begin_ns <= victim.begin_ns && trace.end_ns >= victim.end_ns;
    sample.apart &= trace.sm != victim.sm;
  }
}

}  // namespace tandem::bench
