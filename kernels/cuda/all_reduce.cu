// SPDX-License-Identifier: Apache-2.0
// The plain all-reduce and the small all-gather.
#include "kernels/cuda/all_reduce_kernel.cuh"

namespace tandem::kernels {
namespace {

/// Stores the sums.
template <typename E>
struct StoreEpilogue {
  struct State {};
  static constexpr int kPacksPerThread = 1;  // As `flat_grid` promises.
  static constexpr bool kWholePacks = false;
  E* out = nullptr;
  std::int64_t elements = 0;

  __device__ void begin(const BlockPart&, State&) const {}
  __device__ void load(const BlockPart&, std::int32_t, State&) const {}
  __device__ void join(State&) const {}

  template <typename Fetch>
  __device__ void row(const BlockPart& part, std::int32_t row, std::int64_t total, State&,
                      const Fetch& fetch) const {
    for_row_packs<kPacksPerThread>(part, [&](int k, std::int32_t w) {
      if (part.pack(row, w) >= total) return;
      const Pack<E> sum = fetch(k, w);
      const std::int64_t begin = part.pack(row, w) * Pack<E>::kSize;
      if (begin + Pack<E>::kSize <= elements) {
        store_pack(out + begin, sum);
      } else {
        for (int i = 0; i < Pack<E>::kSize; ++i)
          if (begin + i < elements) out[begin + i] = sum.values[i];
      }
    });
  }
};

struct GatherParts {
  const unsigned char* mine;
  unsigned char* out;
  std::int64_t begin[kMaxPeers + 1];  ///< Rank r's part of `out`.
  std::int32_t packs;                 ///< Of the longest part; every rank sends as many.
};

__device__ Words load_bytes(const unsigned char* from, std::int64_t begin, std::int64_t size) {
  union {
    Words words;
    unsigned char bytes[16];
  } pack{};
  for (int i = 0; i < 16; ++i)
    if (begin + i < size) pack.bytes[i] = from[begin + i];
  return pack.words;
}
__device__ void store_bytes(unsigned char* to, std::int64_t begin, std::int64_t size, Words words) {
  union {
    Words words;
    unsigned char bytes[16];
  } pack{words};
  for (int i = 0; i < 16; ++i)
    if (begin + i < size) to[begin + i] = pack.bytes[i];
}

/// Every rank sends the same number of packs, so that every block hears from every peer in every
/// call: that is what makes two halves of the push region enough.
__global__ void __launch_bounds__(PeerLayout::kPushPacks)
    all_gather_kernel(const __grid_constant__ PeerView view,
                      const __grid_constant__ GatherParts parts) {
  pdl_trigger();
  pdl_wait();
  const std::uint32_t epoch = next_epoch(view, PeerFamily::kPush);
  SpinGuard guard(view);
  const PeerLayout layout{view.size};
  const auto local = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t pack = static_cast<std::int32_t>(blockIdx.x * blockDim.x) + local;
  if (pack < parts.packs) {
    const std::int64_t begin = std::int64_t{pack} * 16;
    const Words own =
        load_bytes(parts.mine, begin, parts.begin[view.rank + 1] - parts.begin[view.rank]);
    const std::int64_t place = PeerLayout::push_place(local);
    push_words(view, layout.push(epoch & 1, view.rank, blockIdx.x) + place, own, epoch);
    const std::byte* base = view.peers[view.rank] + place;
    poll_words<PeerLayout::kPushApart>(
        view, epoch, own, guard,
        [&](int r) { return base + layout.push(epoch & 1, r, blockIdx.x); },
        [&](int r, Words words) {
          store_bytes(parts.out + parts.begin[r], begin, parts.begin[r + 1] - parts.begin[r],
                      words);
        });
  }
  __syncthreads();
  if (threadIdx.x == 0) finish_epoch(view, PeerFamily::kPush, epoch);
}

}  // namespace

template <typename T>
void peer_all_reduce(Context<Cuda>& ctx, Stream<Cuda>& stream, const PeerView& view,
                     PeerAlgorithm algorithm, Span<T, Cuda> data) {
  using E = cuda_t<T>;
  if (data.size == 0 || view.size == 1) return;
  PeerMessage<E> message;
  message.in = to_cuda(data.data);
  message.elements = data.size;
  message.grid = flat_grid((data.size + Pack<E>::kSize - 1) / Pack<E>::kSize, view.max_blocks);
  StoreEpilogue<E> epilogue;
  epilogue.out = to_cuda(data.data);
  epilogue.elements = data.size;
  launch_all_reduce(ctx, stream, algorithm, view, message, epilogue);
}

void peer_all_gather(Context<Cuda>& ctx, Stream<Cuda>& stream, const PeerView& view,
                     const void* mine, void* out, const std::vector<std::int64_t>& counts_bytes) {
  GatherParts parts{};
  parts.mine = static_cast<const unsigned char*>(mine);
  parts.out = static_cast<unsigned char*>(out);
  std::int64_t longest = 0;
  for (int r = 0; r < view.size; ++r) {
    parts.begin[r + 1] = parts.begin[r] + counts_bytes[static_cast<std::size_t>(r)];
    longest = counts_bytes[static_cast<std::size_t>(r)] > longest
                  ? counts_bytes[static_cast<std::size_t>(r)]
                  : longest;
  }
  if (longest == 0) return;
  TANDEM_ASSERT(longest <= kMaxPeerGatherBytes, longest, " bytes in one peer gather");
  parts.packs = static_cast<std::int32_t>((longest + 15) / 16);
  // Whole blocks only where needed: few threads for the few bytes of a decode step.
  const int threads = parts.packs <= 64 ? 64 : static_cast<int>(PeerLayout::kPushPacks);
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>((parts.packs + threads - 1) / threads));
  shape.block = dim3(static_cast<unsigned>(threads));
  shape.dependent = true;
  launch_on(ctx, stream, shape, all_gather_kernel, view, parts);
}

template void peer_all_reduce(Context<Cuda>&, Stream<Cuda>&, const PeerView&, PeerAlgorithm,
                              Span<float, Cuda>);
template void peer_all_reduce(Context<Cuda>&, Stream<Cuda>&, const PeerView&, PeerAlgorithm,
                              Span<BFloat16, Cuda>);
template void peer_all_reduce(Context<Cuda>&, Stream<Cuda>&, const PeerView&, PeerAlgorithm,
                              Span<Float16, Cuda>);

}  // namespace tandem::kernels
