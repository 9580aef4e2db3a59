// SPDX-License-Identifier: Apache-2.0
// Included at the end of onednn.cc or onednn_absent.cc, inside namespace tandem::kernels::cpu:
// there `State` is complete.

template <typename T>
OneDnnMatmul<T>::OneDnnMatmul() = default;
template <typename T>
OneDnnMatmul<T>::OneDnnMatmul(OneDnnMatmul&&) noexcept = default;
template <typename T>
OneDnnMatmul<T>& OneDnnMatmul<T>::operator=(OneDnnMatmul&&) noexcept = default;
template <typename T>
OneDnnMatmul<T>::~OneDnnMatmul() = default;

template class OneDnnMatmul<float>;
template class OneDnnMatmul<BFloat16>;
template bool OneDnnMatmul<float>::multiply(TensorView<const float, Cpu>, const float*,
                                            TensorView<float, Cpu>);
template bool OneDnnMatmul<BFloat16>::multiply(TensorView<const BFloat16, Cpu>, const BFloat16*,
                                               TensorView<BFloat16, Cpu>);
template bool OneDnnMatmul<BFloat16>::multiply(TensorView<const BFloat16, Cpu>, const BFloat16*,
                                               TensorView<float, Cpu>);
