// SPDX-License-Identifier: Apache-2.0
// Matmul through oneDNN: float and bfloat16 weights are packed once, into the layout that oneDNN
// prefers, and the row-major copy is dropped. Float16 (no CPU has fast kernels for it here) takes
// the plain loops.
#include <oneapi/dnnl/dnnl.hpp>
#include <type_traits>
#include <unordered_map>

#include "kernels/cpu/plain_matmul.h"
#include "kernels/device/cpu/context.h"
#include "kernels/linear.h"

namespace tandem::kernels {
namespace {

using dnnl::memory;

template <typename T>
constexpr memory::data_type dnnl_type() {
  return std::is_same_v<T, float> ? memory::data_type::f32 : memory::data_type::bf16;
}

/// Rows for which the packed layout is chosen; oneDNN's kernels accept it for any other count.
constexpr std::int64_t kPackingRows = 64;
/// Primitives kept per weight; prefill segments come in many lengths.
constexpr std::size_t kMaxPrimitives = 64;

dnnl::engine& engine() {
  static dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

memory::desc row_major_desc(std::int64_t rows, std::int64_t cols, std::int64_t stride,
                            memory::data_type type) {
  return {{rows, cols}, type, memory::dims{stride, 1}};
}

}  // namespace

template <typename T>
struct LinearWeight<T, Cpu>::Packed {
  memory::desc layout;  ///< Of the `[K, N]` operand.
  memory data;
  dnnl::stream stream{engine()};
  std::unordered_map<std::int64_t, dnnl::matmul> primitives;  ///< By rows and output type.

  Packed(const T* row_major, std::int64_t n, std::int64_t k) {
    const auto type = dnnl_type<T>();
    const memory::desc any({k, n}, type, memory::format_tag::any);
    const dnnl::matmul::desc desc(row_major_desc(kPackingRows, k, k, type), any,
                                  row_major_desc(kPackingRows, n, n, type));
    layout = dnnl::matmul::primitive_desc(desc, engine()).weights_desc();
    data = memory(layout, engine());
    const memory::desc plain({k, n}, type, memory::dims{1, k});
    memory source(plain, engine(), const_cast<T*>(row_major));
    dnnl::reorder(source, data).execute(stream, source, data);
    stream.wait();
  }

  template <typename Out>
  void multiply(TensorView<const T, Cpu> x, TensorView<Out, Cpu> y) {
    const auto x_desc = row_major_desc(x.rows, x.cols, x.stride, dnnl_type<T>());
    const auto y_desc = row_major_desc(y.rows, y.cols, y.stride, dnnl_type<Out>());
    const std::int64_t key =
        (x.rows << 24 | (x.stride & 0xffffff)) * 2 + std::is_same_v<Out, float>;
    auto found = primitives.find(key);
    if (found == primitives.end()) {
      if (primitives.size() >= kMaxPrimitives) primitives.clear();
      const dnnl::matmul::desc desc(x_desc, layout, y_desc);
      found = primitives.emplace(key, dnnl::matmul({desc, engine()})).first;
    }
    memory x_memory(x_desc, engine(), const_cast<T*>(x.data));
    memory y_memory(y_desc, engine(), y.data);
    found->second.execute(
        stream, {{DNNL_ARG_SRC, x_memory}, {DNNL_ARG_WEIGHTS, data}, {DNNL_ARG_DST, y_memory}});
    stream.wait();
  }
};

template <>
struct LinearWeight<Float16, Cpu>::Packed {};

template <typename T>
LinearWeight<T, Cpu>::LinearWeight(Context<Cpu>&, Buffer<T, Cpu> row_major, std::int64_t rows,
                                   std::int64_t cols)
    : rows_(rows), cols_(cols) {
  if constexpr (std::is_same_v<T, Float16>)
    row_major_ = std::move(row_major);
  else
    packed_ = std::make_unique<Packed>(row_major.data(), rows, cols);
}

template <typename T, typename Out>
void matmul(Context<Cpu>&, TensorView<const T, Cpu> x, const LinearWeight<T, Cpu>& w,
            TensorView<Out, Cpu> y) {
  TANDEM_ASSERT(x.cols == w.cols() && y.cols >= w.rows() && y.rows >= x.rows, "[", x.rows, ",",
                x.cols, "] x [", w.rows(), ",", w.cols(), "]^T -> [", y.rows, ",", y.cols, "]");
  if (x.rows == 0) return;
  TensorView<Out, Cpu> out = y;
  out.rows = x.rows;
  out.cols = w.rows();
  if constexpr (std::is_same_v<T, Float16>)
    cpu::plain_matmul(x, w.row_major(), w.rows(), out);
  else
    w.packed()->multiply(x, out);
}

#include "kernels/cpu/linear_instances.inl"

}  // namespace tandem::kernels
