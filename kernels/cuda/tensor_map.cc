// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/tensor_map.h"

#include "kernels/device/cuda/check.h"
#include "kernels/device/cuda/driver.h"
#include "kernels/device/error.h"

namespace tandem::kernels {

CUtensorMap make_tensor_map(const void* base, DType type,
                            std::initializer_list<TensorMapAxis> axes) {
  constexpr std::size_t kMaxRank = 5;
  TANDEM_ASSERT(axes.size() >= 2 && axes.size() <= kMaxRank, axes.size(), " axes");
  TANDEM_ASSERT(type == DType::kBF16 || type == DType::kF16, name(type));
  cuuint64_t sizes[kMaxRank], strides[kMaxRank];
  cuuint32_t box[kMaxRank], steps[kMaxRank];
  std::size_t axis = 0;
  for (const TensorMapAxis& a : axes) {
    sizes[axis] = static_cast<cuuint64_t>(a.size);
    box[axis] = static_cast<cuuint32_t>(a.box);
    steps[axis] = 1;
    if (axis > 0) strides[axis - 1] = static_cast<cuuint64_t>(a.stride_bytes);
    ++axis;
  }
  CUtensorMap map;
  TANDEM_CHECK(driver().tensor_map_encode_tiled(
      &map,
      type == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      static_cast<cuuint32_t>(axes.size()), const_cast<void*>(base), sizes, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return map;
}

}  // namespace tandem::kernels
