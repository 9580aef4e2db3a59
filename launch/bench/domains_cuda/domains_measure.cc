// SPDX-License-Identifier: Apache-2.0
// What memory synchronization domains are worth (CUDA programming guide, "Memory Synchronization
// Domains"): victims whose fences wait for other kernels' traffic, beside aggressors that make such
// traffic, in three cells: idle, same domain, separate domains. The cells are repeated interleaved
// in random order. One GPU is enough; peer traffic and NCCL need two.
#include <algorithm>
#include <chrono>
#include <memory>
#include <random>

#include "kernels/device/cuda/check.h"
#include "launch/bench/domains_cuda/domains_lab.h"
#include "launch/bench/domains_cuda/domains_nccl.h"
#include "launch/bench/domains_data.h"

namespace tandem::bench {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Owns what victims work on.
class Victims {
 public:
  explicit Victims(DomainsLab& lab) : lab_(lab), memory_(kReadBytes), cycles_(kFences) {
    std::uint32_t* words = reinterpret_cast<std::uint32_t*>(memory_.data());
    add_chain("tiny kernels", kTinyNodes,
              [=, this](int) { launch_tiny(lab_.ctx(), words, lab_.victim_trace()); });
    for (const std::int64_t bytes : {kMiB / 16, 4 * kMiB})
      add_chain(concat("kernels that end ", bytes >> 10, " KiB dirty"), kDirtyNodes,
                [=, this](int) {
                  launch_dirty(lab_.ctx(), reinterpret_cast<uint4*>(memory_.data()), bytes,
                               lab_.victim_trace());
                });
    // One layer of Llama-3-8B on two ranks: qkv, o, gate and up, down, in bytes of weights.
    static constexpr std::int64_t kLayer[] = {25 * kMiB, 17 * kMiB, 117 * kMiB, 58 * kMiB};
    add_chain("decode-shaped chain", kDecodeNodes, [=, this](int node) {
      launch_read(lab_.ctx(), reinterpret_cast<const uint4*>(memory_.data()), kLayer[node % 4],
                  words, lab_.victim_trace());
    });
    add_fences("device-scope fence", FenceScope::kDevice, words);
    add_fences("system-scope fence", FenceScope::kSystem, words);
    victims.push_back({"grid barrier of 32 blocks", "us",
                       [=, this] {
                         fill_zero(lab_.ctx(), words, 4);
                         launch_grid_barriers(lab_.ctx(), 32, kBarriers, words,
                                              lab_.victim_trace());
                       },
                       [](double ms) { return ms * 1e3 / kBarriers; }});
  }

  std::vector<Victim> victims;

 private:
  static constexpr int kTinyNodes = 100, kDirtyNodes = 50, kDecodeNodes = 16, kBarriers = 50;
  static constexpr int kFenceBlocks = 8, kFenceRounds = 100, kFences = kFenceBlocks * kFenceRounds;
  static constexpr std::int64_t kReadBytes = 128 * kMiB;

  void add_chain(const std::string& name, int nodes, const std::function<void(int)>& launch_node) {
    graphs_.push_back(Graph<Cuda>::capture(lab_.ctx(), [&] {
      for (int node = 0; node < nodes; ++node) launch_node(node);
    }));
    graphs_.back().require_domains(0, 1);
    const std::size_t graph = graphs_.size() - 1;
    victims.push_back({name, "us a node",
                       [this, graph] { graphs_[graph].launch(lab_.ctx().compute()); },
                       [nodes](double ms) { return ms * 1e3 / nodes; }});
  }

  void add_fences(const std::string& name, FenceScope scope, std::uint32_t* words) {
    victims.push_back({name, "cycles",
                       [=, this] {
                         launch_fences(lab_.ctx(), scope, kFenceBlocks, kFenceRounds, words,
                                       cycles_.data(), lab_.victim_trace());
                       },
                       [this](double) {
                         std::vector<std::uint32_t> host(kFences);
                         copy_to_host(lab_.ctx(), host.data(), cycles_.data(),
                                      cycles_.size_bytes());
                         lab_.ctx().compute().synchronize();
                         return median({host.begin(), host.end()});
                       }});
  }

  DomainsLab& lab_;
  Buffer<std::uint8_t, Cuda> memory_;
  Buffer<std::uint32_t, Cuda> cycles_;
  std::vector<Graph<Cuda>> graphs_;
};

/// Owns the memory that aggressors work on.
class Aggressors {
 public:
  Aggressors() : local_(kMaxBlocks * kLargePart), host_(kMaxBlocks * kSmallPart) {
    uint4* local = local_.data();
    uint4* host = host_.data();
    aggressors = {
        {"local stores", Traffic::kStores, 24, local, kLargePart},
        {"pinned host stores", Traffic::kStores, 1, host, kSmallPart},
        {"pinned host stores", Traffic::kStores, 8, host, kSmallPart},
        {"pinned host loads", Traffic::kLoads, 8, host, kSmallPart},
        {"pinned host poll + store", Traffic::kPollAndStore, 1, host, kAggressorThreads},
        {"pinned host poll + store", Traffic::kPollAndStore, 8, host, kAggressorThreads},
        {"pinned host poll + store", Traffic::kPollAndStore, 24, host, kAggressorThreads},
    };
    add_peer();
  }
  Aggressors(const Aggressors&) = delete;
  Aggressors& operator=(const Aggressors&) = delete;
  ~Aggressors() {
    if (peer_ != nullptr) TANDEM_CHECK_NOEXCEPT(cudaFree(peer_));
  }

  std::vector<Aggressor> aggressors;

 private:
  static constexpr int kMaxBlocks = 24;
  static constexpr std::int64_t kLargePart = 4 * kMiB / 16, kSmallPart = kMiB / 16;

  /// With a second GPU that can be reached over NVLink or PCIe.
  void add_peer() {
    int count = 0, reachable = 0;
    TANDEM_CHECK(cudaGetDeviceCount(&count));
    if (count > 1) TANDEM_CHECK(cudaDeviceCanAccessPeer(&reachable, 0, 1));
    if (reachable == 0) {
      return;
    }
    TANDEM_CHECK(cudaSetDevice(1));
    TANDEM_CHECK(cudaMalloc(&peer_, kMaxBlocks * kLargePart * sizeof(uint4)));
    TANDEM_CHECK(cudaSetDevice(0));
    TANDEM_CHECK(cudaDeviceEnablePeerAccess(1, 0));
    auto* peer = static_cast<uint4*>(peer_);
    aggressors.push_back({"peer stores", Traffic::kStores, 8, peer, kLargePart});
    aggressors.push_back({"peer stores", Traffic::kStores, 24, peer, kLargePart});
    aggressors.push_back({"peer loads", Traffic::kLoads, 24, peer, kLargePart});
  }

  Buffer<uint4, Cuda> local_;
  HostBuffer<uint4, Cuda> host_;
  void* peer_ = nullptr;
};

/// All three cells of one victim beside one aggressor.
DomainsPair measure_pair(DomainsLab& lab, const Victim& victim, const Aggressor& aggressor,
                         int repeats, std::mt19937& random) {
  DomainsPair pair{victim.name, aggressor.name, victim.unit, {}, {}, {}, {}, {}};
  if (aggressor.blocks > 0) pair.aggressor += concat(" x", aggressor.blocks);
  for (const Cell cell : kCells) lab.measure(victim, aggressor, cell);  // warm-up
  for (int repeat = 0; repeat < repeats; ++repeat) {
    std::vector<Cell> order(std::begin(kCells), std::end(kCells));
    std::shuffle(order.begin(), order.end(), random);
    for (const Cell cell : order) {
      const Sample sample = lab.measure(victim, aggressor, cell);
      (cell == Cell::kIdle   ? pair.idle
       : cell == Cell::kSame ? pair.same
                             : pair.separate)
          .push_back(sample.value);
      pair.not_overlapped += !sample.overlapped;
      pair.shared_sm += !sample.apart;
      if (cell != Cell::kIdle)
        (cell == Cell::kSame ? pair.traffic_same : pair.traffic_separate)
            .push_back(sample.aggressor_gb_per_s);
    }
  }
  return pair;
}

/// What a change of domain between dependent kernels costs by itself.
void measure_changes(DomainsLab& lab, int repeats, DomainsData& data) {
  constexpr int kNodes = 200;
  Buffer<std::uint32_t, Cuda> words(32);
  Event<Cuda> begin{true}, end{true};
  for (const bool alternating : {false, true}) {
    Graph<Cuda> graph = Graph<Cuda>::capture(lab.ctx(), [&] {
      for (int node = 0; node < kNodes; ++node)
        launch_tiny(lab.ctx(), words.data(), nullptr, alternating && node % 2 == 1);
    });
    std::vector<double> values;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      begin.record(lab.ctx().compute());
      graph.launch(lab.ctx().compute());
      end.record(lab.ctx().compute());
      end.synchronize();
      values.push_back(static_cast<double>(end.milliseconds_since(begin)) * 1e3 / kNodes);
    }
    data.facts.push_back({"tiny kernels alone", alternating ? "alternating_domains" : "one_domain",
                          "us a node", values});
  }
}

/// Messages between two running kernels: words that the receiver read before they had arrived.
void measure_messages(DomainsLab& lab, DomainsData& data) {
  constexpr int kRounds = 2000;
  constexpr std::int64_t kWords = 16 * 1024;
  Buffer<std::uint32_t, Cuda> local(kWords), flags(2);
  HostBuffer<std::uint32_t, Cuda> host(kWords);
  Buffer<unsigned long long, Cuda> stale(1);
  for (const bool on_host : {false, true})
    for (const Cell cell : {Cell::kSame, Cell::kSeparate})
      for (const FenceScope scope : {FenceScope::kDevice, FenceScope::kSystem}) {
        fill_zero(lab.ctx(), local.data(), local.size_bytes());
        fill_zero(lab.ctx(), flags.data(), flags.size_bytes());
        fill_zero(lab.ctx(), stale.data(), stale.size_bytes());
        lab.ctx().compute().synchronize();
        std::fill(host.begin(), host.end(), 0u);
        lab.set_aggressor_domain(cell);
        const MessageArgs args{
            scope,        kRounds,          kWords,      on_host ? host.data() : local.data(),
            flags.data(), flags.data() + 1, stale.data()};
        launch_sender(lab.aggressor_stream(), args);
        launch_receiver(lab.ctx(), args);
        unsigned long long count = 0;
        copy_to_host(lab.ctx(), &count, stale.data(), stale.size_bytes());
        lab.ctx().compute().synchronize();
        lab.aggressor_stream().synchronize();
        data.facts.push_back({concat("message in ", on_host ? "pinned host" : "local", " memory, ",
                                     cell == Cell::kSame ? "same domain" : "separate domains", ", ",
                                     scope == FenceScope::kDevice ? "device" : "system", " scope"),
                              "stale_words",
                              concat("of ", kRounds * kWords),
                              {static_cast<double>(count)}});
      }
}

}  // namespace

DomainsData measure_domains(const DomainsOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  Context<Cuda> ctx{CudaOptions{}};
  TANDEM_REQUIRE(ctx.num_domains() > 1,
                 "this GPU has one memory synchronization domain: nothing can be separated, run "
                 "this on Hopper or newer");
  load_domains_kernels();
  DomainsLab lab(ctx);
  Victims victims(lab);
  Aggressors aggressors;
  DomainsData data;
  const std::unique_ptr<NcclPair> nccl = NcclPair::make(ctx);
  if (nccl != nullptr) {
    victims.victims.push_back(nccl->victim());
    aggressors.aggressors.push_back(nccl->aggressor());
  } else {
    data.notes.emplace_back(
        "one GPU: no peer stores and loads, and NCCL is neither aggressor nor victim");
  }
  std::mt19937 random(3);
  const auto wanted = [&](const std::string& name) {
    return options.only.empty() ||
           std::any_of(options.only.begin(), options.only.end(),
                       [&](const std::string& part) { return name.find(part) != name.npos; });
  };
  measure_changes(lab, options.repeats, data);
  measure_messages(lab, data);
  int left_out = 0;
  for (const Aggressor& aggressor : aggressors.aggressors)
    for (const Victim& victim : victims.victims) {
      if (!wanted(victim.name) && !wanted(aggressor.name)) continue;
      if (aggressor.enqueue && !victim.traced) continue;  // NCCL beside itself
      if (seconds() > options.seconds) {
        ++left_out;
        continue;
      }
      data.pairs.push_back(measure_pair(lab, victim, aggressor, options.repeats, random));
      if (options.progress) options.progress(data.pairs.back());
    }
  if (left_out > 0)
    data.notes.push_back(concat(left_out, " pairs were left out after ", options.seconds,
                                " s: raise --seconds, or name fewer with --only"));
  return data;
}

}  // namespace tandem::bench
