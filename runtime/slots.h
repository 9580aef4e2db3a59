// SPDX-License-Identifier: Apache-2.0
// Device state of the sequences that run: one slot each. Only the device advances it; a plan
// brings edits (`apply`), staged through host memory in the order of the steps. Owns its arrays;
// used by the step thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "kernels/device/host_buffer.h"
#include "kernels/sample.h"
#include "kernels/step.h"
#include "runtime/batch_plan.h"
#include "runtime/engine.h"

namespace tandem::runtime {

/// Bytes on their way to the device: two host buffers take turns, because at most two steps are in
/// flight. Grows when a step brings more than ever before.
template <Device D>
class StagedUpload {
 public:
  explicit StagedUpload(std::int64_t size_bytes) { reserve(size_bytes); }

  /// Begins a new upload; what was added two uploads ago may be overwritten.
  void begin() {
    turn_ ^= 1;
    used_ = 0;
  }

  /// Adds an array; its place on the device is returned by `address` after `send`.
  template <typename T>
  std::int64_t add(const std::vector<T>& values) {
    const std::int64_t offset = (used_ + 15) / 16 * 16;
    const auto size = static_cast<std::int64_t>(values.size() * sizeof(T));
    reserve(offset + size);
    if (size > 0)
      std::memcpy(host_[turn_].data() + offset, values.data(), values.size() * sizeof(T));
    used_ = offset + size;
    return offset;
  }
  void send(Context<D>& ctx) {
    if (used_ > 0) copy_to_device(ctx, device_.data(), host_[turn_].data(), used_);
  }
  template <typename T>
  const T* address(std::int64_t offset) const {
    return reinterpret_cast<const T*>(device_.data() + offset);
  }

 private:
  void reserve(std::int64_t size_bytes) {
    if (size_bytes <= device_.size()) return;
    const std::int64_t capacity = std::max(size_bytes, 2 * device_.size());
    for (auto& buffer : host_) {
      HostBuffer<std::byte, D> larger(capacity);
      if (buffer.size() > 0)
        std::memcpy(larger.data(), buffer.data(), static_cast<std::size_t>(buffer.size()));
      buffer = std::move(larger);
    }
    device_ = Buffer<std::byte, D>(capacity);
  }

  std::array<HostBuffer<std::byte, D>, 2> host_;
  Buffer<std::byte, D> device_;
  std::int64_t used_ = 0;
  int turn_ = 0;
};

template <Device D>
class Slots {
 public:
  Slots(Context<D>& ctx, const EngineLimits& limits)
      : num_slots_(limits.max_num_seqs),
        table_stride_((limits.max_model_len + kernels::kChunkTokens - 1) / kernels::kChunkTokens),
        history_stride_(limits.max_model_len + 1),
        last_token_(num_slots_),
        length_(num_slots_),
        done_(num_slots_),
        params_(num_slots_),
        chunk_table_(std::int64_t{num_slots_} * table_stride_),
        history_(std::int64_t{num_slots_} * history_stride_),
        edits_(std::int64_t{num_slots_} * 256),
        bias_upload_(std::int64_t{num_slots_} * 16),
        bias_(static_cast<std::size_t>(num_slots_)) {
    fill_zero(ctx, last_token_.data(), last_token_.size_bytes());
    fill_zero(ctx, length_.data(), length_.size_bytes());
    fill_zero(ctx, done_.data(), done_.size_bytes());
    fill_zero(ctx, params_.data(), params_.size_bytes());
    fill_zero(ctx, chunk_table_.data(), chunk_table_.size_bytes());
    fill_zero(ctx, history_.data(), history_.size_bytes());
  }

  kernels::SlotView<D> view() const {
    return {num_slots_,    last_token_.data(), length_.data(),
            done_.data(),  params_.data(),     chunk_table_.data(),
            table_stride_, history_.data(),    history_stride_};
  }
  /// Bias lists of all slots; `begin` is null while no slot has any.
  const kernels::LogitBiasView<D>& bias() const { return bias_view_; }

  /// Carries out the plan's slot edits on the compute stream; no-op when there are none.
  void apply(Context<D>& ctx, const BatchPlan& plan) {
    if (plan.inits.empty() && plan.assigns.empty()) return;
    std::vector<kernels::SlotInitRecord> inits;
    std::vector<kernels::ChunkAssignRecord> assigns;
    std::vector<kernels::HistoryRecord> history;
    for (const SlotInit& init : plan.inits) {
      inits.push_back({init.slot, static_cast<std::int32_t>(init.history.size()), init.params});
      for (std::size_t p = 0; p < init.history.size(); ++p)
        history.push_back({init.slot, static_cast<std::int32_t>(p), init.history[p]});
    }
    for (const ChunkAssign& assign : plan.assigns)
      assigns.push_back({assign.slot, assign.index, assign.chunk});
    edits_.begin();
    const std::int64_t inits_at = edits_.add(inits), assigns_at = edits_.add(assigns),
                       history_at = edits_.add(history);
    edits_.send(ctx);
    kernels::SlotEdits<D> edits;
    edits.inits = edits_.template address<kernels::SlotInitRecord>(inits_at);
    edits.assigns = edits_.template address<kernels::ChunkAssignRecord>(assigns_at);
    edits.history = edits_.template address<kernels::HistoryRecord>(history_at);
    edits.num_inits = static_cast<std::int32_t>(inits.size());
    edits.num_assigns = static_cast<std::int32_t>(assigns.size());
    edits.num_history = static_cast<std::int32_t>(history.size());
    edits.slots = view();
    kernels::apply_slot_edits(ctx, edits);
    update_bias(ctx, plan);
  }

 private:
  /// What one slot adds to the logits and forbids; host copy.
  struct Bias {
    std::vector<std::pair<std::int32_t, float>> list;
    std::uint8_t exclusive = 0;
    std::vector<std::vector<std::int32_t>> bad_words;
    bool operator==(const Bias&) const = default;
  };

  static Bias bias_of(const SlotInit& init) {
    Bias bias{init.logit_bias, 0, init.bad_words};
    if (init.allowed.empty()) return bias;
    bias.exclusive = 1;
    std::map<std::int32_t, float> allowed;
    for (const std::int32_t id : init.allowed) allowed.emplace(id, 0.0f);
    for (const auto& [id, value] : init.logit_bias)
      if (const auto entry = allowed.find(id); entry != allowed.end()) entry->second += value;
    bias.list.assign(allowed.begin(), allowed.end());
    return bias;
  }

  /// Rewrites the bias lists when a slot's list appears or goes.
  void update_bias(Context<D>& ctx, const BatchPlan& plan) {
    bool changed = false;
    for (const SlotInit& init : plan.inits) {
      Bias bias = bias_of(init);
      Bias& old = bias_[static_cast<std::size_t>(init.slot)];
      changed = changed || bias != old;
      old = std::move(bias);
    }
    if (!changed) return;
    std::vector<std::int32_t> begin{0}, ids, word_begin{0}, word_tokens{0}, words;
    std::vector<float> values;
    std::vector<std::uint8_t> exclusive;
    for (const Bias& bias : bias_) {
      for (const auto& [id, value] : bias.list) {
        ids.push_back(id);
        values.push_back(value);
      }
      begin.push_back(static_cast<std::int32_t>(ids.size()));
      exclusive.push_back(bias.exclusive);
      for (const auto& word : bias.bad_words) {
        words.insert(words.end(), word.begin(), word.end());
        word_tokens.push_back(static_cast<std::int32_t>(words.size()));
      }
      word_begin.push_back(static_cast<std::int32_t>(word_tokens.size()) - 1);
    }
    bias_upload_.begin();
    const std::int64_t begin_at = bias_upload_.add(begin), ids_at = bias_upload_.add(ids),
                       values_at = bias_upload_.add(values),
                       exclusive_at = bias_upload_.add(exclusive),
                       word_begin_at = bias_upload_.add(word_begin),
                       word_tokens_at = bias_upload_.add(word_tokens),
                       words_at = bias_upload_.add(words);
    bias_upload_.send(ctx);
    const auto at = [this]<typename E>(E, std::int64_t offset) {
      return bias_upload_.template address<E>(offset);
    };
    bias_view_ = {at(0, begin_at),      at(0, ids_at),
                  at(0.0f, values_at),  at(std::uint8_t{}, exclusive_at),
                  at(0, word_begin_at), at(0, word_tokens_at),
                  at(0, words_at)};
  }

  std::int32_t num_slots_, table_stride_, history_stride_;
  Buffer<std::int32_t, D> last_token_, length_;
  Buffer<std::uint8_t, D> done_;
  Buffer<kernels::SlotParams, D> params_;
  Buffer<std::int32_t, D> chunk_table_, history_;
  StagedUpload<D> edits_, bias_upload_;
  std::vector<Bias> bias_;  ///< By slot.
  kernels::LogitBiasView<D> bias_view_;
};

}  // namespace tandem::runtime
