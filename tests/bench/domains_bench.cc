// SPDX-License-Identifier: Apache-2.0
// What memory synchronization domains are worth (CUDA programming guide, "Memory Synchronization
// Domains"): victims whose fences wait for other kernels' traffic, beside aggressors that make such
// traffic, in three cells: idle, same domain, separate domains. The cells are repeated interleaved
// in random order; `removed = (same - separate) / (same - idle)` is stated only where same - idle
// exceeds three times the spread, else 'no effect seen'. JSON on stdout, a table on stderr.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <random>

#include "kernels/device/cuda/check.h"
#include "tests/bench/domains_lab.h"
#include "tests/bench/domains_nccl.h"
#include "tests/bench/report.h"

namespace tandem::bench {
namespace {

constexpr int kRepeats = 31;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
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
                         return quantile({host.begin(), host.end()}, 0.5);
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
      std::fprintf(stderr, "one GPU: no peer traffic in this run\n");
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

const char* cell_name(Cell cell) {
  return cell == Cell::kIdle ? "idle" : cell == Cell::kSame ? "same_domain" : "separate_domains";
}

/// All three cells of one victim beside one aggressor.
void measure_pair(DomainsLab& lab, const Victim& victim, const Aggressor& aggressor,
                  std::mt19937& random, Report& report) {
  std::map<Cell, std::vector<double>> values, traffic;
  int unproven = 0, shared_sm = 0;
  for (const Cell cell : kCells) lab.measure(victim, aggressor, cell);  // warm-up
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    std::vector<Cell> order(std::begin(kCells), std::end(kCells));
    std::shuffle(order.begin(), order.end(), random);
    for (const Cell cell : order) {
      const Sample sample = lab.measure(victim, aggressor, cell);
      values[cell].push_back(sample.value);
      traffic[cell].push_back(sample.aggressor_gb_per_s);
      unproven += !sample.overlapped;
      shared_sm += !sample.apart;
    }
  }
  const std::string name = concat(victim.name, " beside ", aggressor.name,
                                  aggressor.blocks > 0 ? concat(" x", aggressor.blocks) : "");
  double spread = 0;
  for (const Cell cell : kCells) {
    report.add_median(name, cell_name(cell), victim.unit, values[cell], 0);
    spread = std::max(spread, (quantile(values[cell], 0.75) - quantile(values[cell], 0.25)) / 2);
  }
  for (const Cell cell : {Cell::kSame, Cell::kSeparate})
    report.add_median(name, concat("aggressor_", cell_name(cell)), "GB/s", traffic[cell], 0);
  const double idle = quantile(values[Cell::kIdle], 0.5), same = quantile(values[Cell::kSame], 0.5),
               separate = quantile(values[Cell::kSeparate], 0.5);
  if (same - idle > 3 * spread)
    report.add_median(name, "removed", "share", {(same - separate) / (same - idle)}, 0);
  else
    std::fprintf(stderr, "%s: no effect seen\n", name.c_str());
  if (unproven + shared_sm > 0)
    std::fprintf(stderr, "%s: %d samples did not overlap, %d shared an SM\n", name.c_str(),
                 unproven, shared_sm);
}

/// What a change of domain between dependent kernels costs by itself.
void measure_changes(DomainsLab& lab, Report& report) {
  constexpr int kNodes = 200;
  Buffer<std::uint32_t, Cuda> words(32);
  Event<Cuda> begin{true}, end{true};
  for (const bool alternating : {false, true}) {
    Graph<Cuda> graph = Graph<Cuda>::capture(lab.ctx(), [&] {
      for (int node = 0; node < kNodes; ++node)
        launch_tiny(lab.ctx(), words.data(), nullptr, alternating && node % 2 == 1);
    });
    std::vector<double> values;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      begin.record(lab.ctx().compute());
      graph.launch(lab.ctx().compute());
      end.record(lab.ctx().compute());
      end.synchronize();
      values.push_back(static_cast<double>(end.milliseconds_since(begin)) * 1e3 / kNodes);
    }
    report.add_median("tiny kernels alone", alternating ? "alternating_domains" : "one_domain",
                      "us a node", values, 0);
  }
}

/// Messages between two running kernels: words that the receiver read before they had arrived.
void measure_messages(DomainsLab& lab, Report& report) {
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
        report.add_median(
            concat("message in ", on_host ? "pinned host" : "local", " memory, ", cell_name(cell),
                   ", ", scope == FenceScope::kDevice ? "device" : "system", " scope"),
            "stale_words", concat("of ", kRounds * kWords), {static_cast<double>(count)}, 0);
      }
}

}  // namespace

/// Arguments are parts of names: only victims or aggressors that contain one of them are measured.
int run(int argc, char** argv) {
  Context<Cuda> ctx{CudaOptions{}};
  TANDEM_REQUIRE(ctx.num_domains() > 1,
                 "this GPU has one memory synchronization domain: nothing "
                 "can be separated, run this on Hopper or newer");
  DomainsLab lab(ctx);
  Victims victims(lab);
  Aggressors aggressors;
  const std::unique_ptr<NcclPair> nccl = NcclPair::make(ctx);
  if (nccl != nullptr) {
    victims.victims.push_back(nccl->victim());
    aggressors.aggressors.push_back(nccl->aggressor());
  } else {
    std::fprintf(stderr, "one GPU: NCCL is neither aggressor nor victim in this run\n");
  }
  Report report("domains", argc, argv);
  std::mt19937 random(3);
  const auto wanted = [&](const std::string& name) {
    for (int i = 1; i < argc; ++i)
      if (name.find(argv[i]) != std::string::npos) return true;
    return argc < 2;
  };
  measure_changes(lab, report);
  measure_messages(lab, report);
  for (const Aggressor& aggressor : aggressors.aggressors)
    for (const Victim& victim : victims.victims)
      if ((wanted(victim.name) || wanted(aggressor.name)) && !(aggressor.enqueue && !victim.traced))
        measure_pair(lab, victim, aggressor, random, report);
  report.print();
  return 0;
}

}  // namespace tandem::bench

int main(int argc, char** argv) {
  try {
    return tandem::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "domains_bench: %s\n", error.what());
    return 1;
  }
}
