// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "kernels/device/error.h"
#include "runtime/weights/dequantize.h"
#include "runtime/weights/dummy_weights.h"
#include "runtime/weights/gguf_config.h"
#include "runtime/weights/mapped_file.h"
#include "runtime/weights/model_path.h"
#include "runtime/weights/safetensors_reader.h"
#include "runtime/weights/tensor_names.h"
#include "runtime/weights/weight_formats.h"

namespace tandem::runtime {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += concat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

/// Buffers that old checkpoints carry and that no model reads, and a tied head stored again.
bool is_ignored(std::string_view name, const ModelConfig& config) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".masked_bias") ||
         (config.tied_embeddings && name == "lm_head.weight");
}

/// Where row `row` of a matrix is stored when each head's rows are interleaved.
std::int64_t stored_row(const TensorEntry& entry, std::int64_t row) {
  if (entry.permuted_heads == 0) return row;
  const std::int64_t head_rows = entry.shape[0] / entry.permuted_heads;
  const std::int64_t head = row / head_rows, within = row % head_rows, half = head_rows / 2;
  return head * head_rows + 2 * (within % half) + within / half;
}

template <typename T>
constexpr StorageType plain_type() {
  return dtype_of<T> == DType::kF32   ? StorageType::kF32
         : dtype_of<T> == DType::kF16 ? StorageType::kF16
                                      : StorageType::kBF16;
}

/// Converts elements [first, first + count) of a row stored at `row_data`. Returns bytes touched.
template <typename T>
std::int64_t read_row(const TensorEntry& entry, const std::byte* row_data, std::int64_t first,
                      std::int64_t count, std::vector<float>& scratch, T* out) {
  const std::int64_t elements = block_elements(entry.type), bytes = block_bytes(entry.type);
  if (entry.type == plain_type<T>()) {
    std::memcpy(out, row_data + first * bytes, static_cast<std::size_t>(count * bytes));
    return count * bytes;
  }
  const std::int64_t begin = first / elements, end = (first + count - 1) / elements + 1;
  scratch.resize(static_cast<std::size_t>((end - begin) * elements));
  dequantize(entry.type, row_data + begin * bytes, end - begin, scratch.data());
  const float* values = scratch.data() + (first - begin * elements);
  for (std::int64_t i = 0; i < count; ++i) out[i] = T(values[i]);
  return (end - begin) * bytes;
}

template <typename T>
void read_dummy(const TensorEntry& entry, std::int64_t first, std::int64_t count,
                std::vector<float>& scratch, T* out) {
  scratch.resize(static_cast<std::size_t>(count));
  dummy_values(entry, first, count, scratch.data());
  for (std::int64_t i = 0; i < count; ++i) out[i] = T(scratch[static_cast<std::size_t>(i)]);
}

}  // namespace

Checkpoint Checkpoint::open(const std::filesystem::path& path) {
  Checkpoint out;
  out.origin_ = path.string();
  if (is_gguf(path)) {
    const GgufFile file(path);
    out.tensors_ = gguf_tensors(file);
    out.files_ = file.files();
  } else {
    out.tensors_ = read_safetensors_folder(path, out.files_);
  }
  return out;
}

Checkpoint Checkpoint::dummy(const ModelConfig& config, std::uint64_t seed) {
  Checkpoint out;
  out.origin_ = "dummy weights";
  out.tensors_ = dummy_tensors(config, seed);
  return out;
}

const TensorEntry* Checkpoint::find(std::string_view name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

const TensorEntry& Checkpoint::at(std::string_view name) const {
  const TensorEntry* entry = find(name);
  TANDEM_REQUIRE(entry != nullptr, origin_, " lacks tensor ", name,
                 ", which its config.json asks for: download the model again");
  return *entry;
}

void Checkpoint::require_fits(const ModelConfig& config) const {
  const StorageType stated = config.dtype == DType::kF32   ? StorageType::kF32
                             : config.dtype == DType::kF16 ? StorageType::kF16
                                                           : StorageType::kBF16;
  std::set<std::string, std::less<>> used;
  for (const NamedShape& tensor : TensorNames(config).all()) {
    const TensorEntry& entry = at(tensor.name);
    TANDEM_REQUIRE(entry.shape == tensor.shape, origin_, ": tensor ", tensor.name, " has shape ",
                   shape_text(entry.shape), " but config.json asks for ", shape_text(tensor.shape),
                   ": the two do not belong together, download the model again");
    const bool plain = block_elements(entry.type) == 1 && entry.type != StorageType::kDummy;
    TANDEM_REQUIRE(
        !plain || entry.shape.size() == 1 || entry.type == stated || origin_.ends_with(".gguf"),
        origin_, ": tensor ", tensor.name, " is ", runtime::name(entry.type),
        " but config.json says ", tandem::name(config.dtype),
        ": the two do not belong together, download the model again or correct "
        "\"torch_dtype\" in config.json");
    used.insert(tensor.name);
  }
  for (const auto& [name, entry] : tensors_)
    TANDEM_REQUIRE(used.contains(name) || is_ignored(name, config), origin_, " holds tensor ", name,
                   ", which a ", config.architecture,
                   " with this config.json does not have: the "
                   "two do not belong together, download the model again");
}

void Checkpoint::release_pages() const {
  for (const auto& file : files_) file->release_pages();
}

template <typename T>
void Checkpoint::read(const TensorEntry& entry, std::int64_t row, std::int64_t num_rows,
                      std::int64_t col, std::int64_t num_cols, T* out,
                      std::int64_t out_stride) const {
  TANDEM_ASSERT(!entry.shape.empty(), "a scalar is not read");
  const bool is_vector = entry.shape.size() == 1;
  const std::int64_t rows = is_vector ? 1 : entry.shape[0];
  std::int64_t cols = 1;
  for (std::size_t i = is_vector ? 0 : 1; i < entry.shape.size(); ++i) cols *= entry.shape[i];
  TANDEM_ASSERT(row >= 0 && num_rows >= 0 && row <= rows - num_rows && col >= 0 && num_cols >= 0 &&
                    col <= cols - num_cols,
                "slice outside of a tensor of shape ", shape_text(entry.shape));
  if (num_rows == 0 || num_cols == 0) return;
  const std::int64_t row_bytes = cols / block_elements(entry.type) * block_bytes(entry.type);
  std::vector<float> scratch;
  std::int64_t touched = 0;
  for (std::int64_t r = row; r < row + num_rows; ++r, out += out_stride) {
    if (entry.type == StorageType::kDummy) {
      read_dummy(entry, r * cols + col, num_cols, scratch, out);
    } else if (is_vector && entry.permuted_heads > 0) {
      for (std::int64_t c = 0; c < num_cols; ++c)
        touched += read_row(entry, entry.data, stored_row(entry, col + c), 1, scratch, out + c);
    } else {
      const std::byte* data = entry.data + (is_vector ? 0 : stored_row(entry, r)) * row_bytes;
      touched += read_row(entry, data, col, num_cols, scratch, out);
    }
  }
  bytes_read_->fetch_add(touched, std::memory_order_relaxed);
}

void Checkpoint::read(const TensorEntry& entry, std::int64_t row, std::int64_t num_rows,
                      std::int64_t col, std::int64_t num_cols, kernels::QuantBlock* out,
                      std::int64_t out_stride) const {
  constexpr std::int64_t kValues = kernels::QuantBlock::kValues;
  TANDEM_ASSERT(entry.shape.size() == 2 && quant_format(entry.type), "no blocks in a ",
                runtime::name(entry.type));
  TANDEM_ASSERT(row >= 0 && num_rows >= 0 && row <= entry.shape[0] - num_rows && col >= 0 &&
                    num_cols >= 0 && col <= entry.shape[1] - num_cols && col % kValues == 0 &&
                    num_cols % kValues == 0,
                "blocks outside of a tensor of shape ", shape_text(entry.shape));
  const std::int64_t bytes = block_bytes(entry.type), blocks = num_cols / kValues;
  for (std::int64_t r = row; r < row + num_rows; ++r, out += out_stride) {
    const std::int64_t first = (stored_row(entry, r) * entry.shape[1] + col) / kValues;
    read_blocks(entry.type, entry.data + first * bytes, blocks, out);
  }
  bytes_read_->fetch_add(num_rows * blocks * bytes, std::memory_order_relaxed);
}

template void Checkpoint::read(const TensorEntry&, std::int64_t, std::int64_t, std::int64_t,
                               std::int64_t, float*, std::int64_t) const;
template void Checkpoint::read(const TensorEntry&, std::int64_t, std::int64_t, std::int64_t,
                               std::int64_t, BFloat16*, std::int64_t) const;
template void Checkpoint::read(const TensorEntry&, std::int64_t, std::int64_t, std::int64_t,
                               std::int64_t, Float16*, std::int64_t) const;

}  // namespace tandem::runtime
