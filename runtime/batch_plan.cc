// SPDX-License-Identifier: Apache-2.0
#include "runtime/batch_plan.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

using Bias = std::pair<std::int32_t, float>;
static_assert(sizeof(kernels::SlotParams) == 8 + 7 * 4 + 5 * 4 + kernels::kMaxStopIds * 4,
              "SlotParams is sent bitwise and compared bitwise: it must have no padding");

class Writer {
 public:
  template <typename T>
  void value(const T& item) {
    static_assert(std::is_trivially_copyable_v<T>);
    append(&item, sizeof(T));
  }
  template <typename T>
  void array(const std::vector<T>& items) {
    count(items);
    if (!items.empty()) append(items.data(), items.size() * sizeof(T));
  }
  template <typename T>
  void count(const std::vector<T>& items) {
    value(static_cast<std::uint64_t>(items.size()));
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void append(const void* data, std::size_t size_bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size_bytes);
  }
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  void value(T& item) {
    static_assert(std::is_trivially_copyable_v<T>);
    copy(&item, sizeof(T));
  }
  /// A bool or small enum: only 0 and 1 are legal, anything else would be undefined behaviour.
  template <typename T>
  void flag(T& item) {
    std::uint8_t raw = 0;
    value(raw);
    TANDEM_ASSERT(raw <= 1, "plan: a flag has the value ", int{raw});
    item = static_cast<T>(raw);
  }
  template <typename T>
  void array(std::vector<T>& items) {
    items.resize(count(sizeof(T)));
    if (!items.empty()) copy(items.data(), items.size() * sizeof(T));
  }
  /// Number of elements that follow, each at least `element_bytes` long.
  std::size_t count(std::size_t element_bytes) {
    std::uint64_t n = 0;
    value(n);
    TANDEM_ASSERT(n <= bytes_.size() / element_bytes, "plan: ", n, " elements do not fit in ",
                  bytes_.size(), " bytes");
    return static_cast<std::size_t>(n);
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  void copy(void* data, std::size_t size_bytes) {
    TANDEM_ASSERT(size_bytes <= bytes_.size(), "plan: cut short, ", size_bytes, " bytes wanted, ",
                  bytes_.size(), " left");
    std::copy_n(bytes_.begin(), size_bytes, static_cast<std::byte*>(data));
    bytes_ = bytes_.subspan(size_bytes);
  }
  std::span<const std::byte> bytes_;
};

void write_bias(Writer& out, const std::vector<Bias>& bias) {
  out.count(bias);
  for (const auto& [id, value] : bias) {
    out.value(id);
    out.value(value);
  }
}

void read_bias(Reader& in, std::vector<Bias>& bias) {
  bias.resize(in.count(sizeof(std::int32_t) + sizeof(float)));
  for (auto& [id, value] : bias) {
    in.value(id);
    in.value(value);
  }
}

constexpr std::size_t kMinInitBytes = sizeof(std::int32_t) + sizeof(kernels::SlotParams) + 4 * 8;
constexpr std::size_t kMinSegmentBytes = 3 * sizeof(std::int32_t) + 2 * 8 + 1;

}  // namespace

bool SlotInit::operator==(const SlotInit& other) const {
  return slot == other.slot && std::memcmp(&params, &other.params, sizeof(params)) == 0 &&
         logit_bias == other.logit_bias && allowed == other.allowed &&
         bad_words == other.bad_words && history == other.history;
}

std::int32_t BatchPlan::num_prefill_tokens() const {
  std::size_t total = 0;
  for (const PrefillSegment& segment : segments) total += segment.tokens.size();
  return static_cast<std::int32_t>(total);
}

std::int32_t BatchPlan::num_samples() const {
  auto total = static_cast<std::int32_t>(decode_slots.size());
  for (const PrefillSegment& segment : segments) total += segment.sample ? 1 : 0;
  return total;
}

std::int32_t BatchPlan::num_scores() const {
  std::size_t total = 0;
  for (const PrefillSegment& segment : segments) total += segment.score_targets.size();
  return static_cast<std::int32_t>(total);
}

std::vector<std::byte> serialize(const BatchPlan& plan) {
  Writer out;
  out.value(plan.step);
  out.value(static_cast<std::uint8_t>(plan.stop));
  out.value(plan.mapped_chunks);
  out.count(plan.inits);
  for (const SlotInit& init : plan.inits) {
    out.value(init.slot);
    out.value(init.params);
    write_bias(out, init.logit_bias);
    out.array(init.allowed);
    out.count(init.bad_words);
    for (const auto& word : init.bad_words) out.array(word);
    out.array(init.history);
  }
  out.array(plan.assigns);
  out.array(plan.chunk_copies);
  out.array(plan.decode_slots);
  out.count(plan.segments);
  for (const PrefillSegment& segment : plan.segments) {
    out.value(segment.slot);
    out.value(segment.begin);
    out.array(segment.tokens);
    out.value(static_cast<std::uint8_t>(segment.sample));
    out.value(segment.score_begin);
    out.array(segment.score_targets);
  }
  out.value(static_cast<std::uint8_t>(plan.sample_mode));
  out.value(static_cast<std::uint8_t>(plan.process_logits));
  out.value(static_cast<std::uint8_t>(plan.logprobs));
  out.value(plan.max_kv_tokens);
  return out.take();
}

BatchPlan deserialize(std::span<const std::byte> bytes) {
  Reader in(bytes);
  BatchPlan plan;
  in.value(plan.step);
  in.flag(plan.stop);
  in.value(plan.mapped_chunks);
  plan.inits.resize(in.count(kMinInitBytes));
  for (SlotInit& init : plan.inits) {
    in.value(init.slot);
    in.value(init.params);
    read_bias(in, init.logit_bias);
    in.array(init.allowed);
    init.bad_words.resize(in.count(sizeof(std::uint64_t)));
    for (auto& word : init.bad_words) in.array(word);
    in.array(init.history);
  }
  in.array(plan.assigns);
  in.array(plan.chunk_copies);
  in.array(plan.decode_slots);
  plan.segments.resize(in.count(kMinSegmentBytes));
  for (PrefillSegment& segment : plan.segments) {
    in.value(segment.slot);
    in.value(segment.begin);
    in.array(segment.tokens);
    in.flag(segment.sample);
    in.value(segment.score_begin);
    in.array(segment.score_targets);
  }
  in.flag(plan.sample_mode);
  in.flag(plan.process_logits);
  in.flag(plan.logprobs);
  in.value(plan.max_kv_tokens);
  TANDEM_ASSERT(in.at_end(), "plan: bytes left over");
  return plan;
}

}  // namespace tandem::runtime
