// SPDX-License-Identifier: Apache-2.0
// What every CPU matmul has in common, included at the end of the one that is built, inside
// namespace tandem::kernels: `Packed` is complete there, so the weight can be moved and destroyed,
// and the element types are instantiated.

template <typename T>
LinearWeight<T, Cpu>::LinearWeight() = default;
template <typename T>
LinearWeight<T, Cpu>::LinearWeight(LinearWeight&&) noexcept = default;
template <typename T>
LinearWeight<T, Cpu>& LinearWeight<T, Cpu>::operator=(LinearWeight&&) noexcept = default;
template <typename T>
LinearWeight<T, Cpu>::~LinearWeight() = default;

template class LinearWeight<float, Cpu>;
template class LinearWeight<BFloat16, Cpu>;
template class LinearWeight<Float16, Cpu>;
template void matmul(Context<Cpu>&, TensorView<const float, Cpu>, const LinearWeight<float, Cpu>&,
                     TensorView<float, Cpu>);
template void matmul(Context<Cpu>&, TensorView<const BFloat16, Cpu>,
                     const LinearWeight<BFloat16, Cpu>&, TensorView<BFloat16, Cpu>);
template void matmul(Context<Cpu>&, TensorView<const BFloat16, Cpu>,
                     const LinearWeight<BFloat16, Cpu>&, TensorView<float, Cpu>);
template void matmul(Context<Cpu>&, TensorView<const Float16, Cpu>,
                     const LinearWeight<Float16, Cpu>&, TensorView<Float16, Cpu>);
template void matmul(Context<Cpu>&, TensorView<const Float16, Cpu>,
                     const LinearWeight<Float16, Cpu>&, TensorView<float, Cpu>);
