// SPDX-License-Identifier: Apache-2.0
// Element types inside kernels: CUDA's own types for our storage types, conversions through float,
// and 16-byte vectors. Pointers are reinterpreted at the launcher, never element by element.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/device/dtype.h"

namespace tandem {

template <typename T>
struct CudaElement {
  using type = T;
};
template <>
struct CudaElement<BFloat16> {
  using type = __nv_bfloat16;
};
template <>
struct CudaElement<Float16> {
  using type = __half;
};
template <typename T>
using cuda_t = typename CudaElement<T>::type;

template <typename T>
cuda_t<T>* to_cuda(T* pointer) {
  return reinterpret_cast<cuda_t<T>*>(pointer);
}
template <typename T>
const cuda_t<T>* to_cuda(const T* pointer) {
  return reinterpret_cast<const cuda_t<T>*>(pointer);
}

#ifdef __CUDACC__
__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }

template <typename E>
__device__ __forceinline__ E from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __forceinline__ __half from_float<__half>(float value) {
  return __float2half_rn(value);
}

/// 16 bytes of E, loaded and stored with one instruction.
template <typename E>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(E);
  E values[kSize];
};
template <typename E>
__device__ __forceinline__ Pack<E> load_pack(const E* from) {
  return *reinterpret_cast<const Pack<E>*>(from);
}
template <typename E>
__device__ __forceinline__ void store_pack(E* to, const Pack<E>& pack) {
  *reinterpret_cast<Pack<E>*>(to) = pack;
}
#endif

}  // namespace tandem
