// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/onednn.h"

#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <type_traits>
#include <unordered_map>

namespace tandem::kernels::cpu {
namespace {

using dnnl::memory;

/// Primitives kept per weight; prefill segments come in many lengths.
constexpr std::size_t kMaxPrimitives = 64;

template <typename T>
constexpr memory::data_type dnnl_type() {
  return std::is_same_v<T, float> ? memory::data_type::f32 : memory::data_type::bf16;
}

dnnl::engine& engine() {
  static dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

template <typename T>
memory::desc matrix(const TensorView<T, Cpu>& view) {
  return {
      {view.rows, view.cols}, dnnl_type<std::remove_const_t<T>>(), memory::dims{view.stride, 1}};
}

/// The operand `[K, N]` as the weight lies in memory; kernels/cpu/packed_weight.h for bfloat16.
template <typename T>
memory::desc weight_desc(std::int64_t k, std::int64_t n) {
  if constexpr (std::is_same_v<T, float>)
    return {{k, n}, memory::data_type::f32, memory::dims{1, k}};
  else
    return {{k, n}, memory::data_type::bf16, memory::format_tag::BA16a64b2a};
}

/// Empty when there is no fast kernel.
template <typename T>
dnnl::matmul make_primitive(const memory::desc& x, const memory::desc& weight,
                            const memory::desc& y) {
  const dnnl::matmul::primitive_desc found(dnnl::matmul::desc(x, weight, y), engine(),
                                           /*allow_empty=*/true);
  if (!found) return {};
  // Without bfloat16 instructions there is nothing, or a reference hundreds of times slower.
  const std::string_view kernel = found.impl_info_str();
  if (!std::is_same_v<T, float> && !kernel.starts_with("brg")) return {};
  return dnnl::matmul(found);
}

}  // namespace

template <typename T>
struct OneDnnMatmul<T>::State {
  memory::desc weight;
  dnnl::stream stream{engine()};
  std::unordered_map<std::int64_t, dnnl::matmul> primitives;  ///< By rows, stride, output type.
};

template <typename T>
template <typename Out>
bool OneDnnMatmul<T>::multiply(TensorView<const T, Cpu> x, const T* weight,
                               TensorView<Out, Cpu> y) {
  if (state_ == nullptr)
    state_ = std::make_unique<State>(State{weight_desc<T>(x.cols, y.cols), {engine()}, {}});
  State& state = *state_;
  const memory::desc x_desc = matrix(x), y_desc = matrix(y);
  const std::int64_t key = (x.rows << 24 | (x.stride & 0xffffff)) * 2 + std::is_same_v<Out, float>;
  auto found = state.primitives.find(key);
  if (found == state.primitives.end()) {
    if (state.primitives.size() >= kMaxPrimitives) state.primitives.clear();
    found = state.primitives.emplace(key, make_primitive<T>(x_desc, state.weight, y_desc)).first;
  }
  if (!found->second) return false;
  memory x_memory(x_desc, engine(), const_cast<T*>(x.data));
  memory w_memory(state.weight, engine(), const_cast<T*>(weight));
  memory y_memory(y_desc, engine(), y.data);
  found->second.execute(
      state.stream,
      {{DNNL_ARG_SRC, x_memory}, {DNNL_ARG_WEIGHTS, w_memory}, {DNNL_ARG_DST, y_memory}});
  state.stream.wait();
  return true;
}

#include "kernels/cpu/onednn_instances.inl"

}  // namespace tandem::kernels::cpu
