# The CUDA half of `kernels`: added to the same library, so that a missing op is a link error.
# libcuda is never linked (kernels/device/cuda/driver.h), so the programs start without a driver.
target_sources(tandem_kernels PRIVATE
  cuda/cublas_check.cc
  cuda/linear_cublaslt.cc
  cuda/matmul_cache.cc
  device/cuda/buffer.cc
  device/cuda/check.cc
  device/cuda/context.cc
  device/cuda/device_info.cc
  device/cuda/driver.cc
  device/cuda/event.cc
  device/cuda/graph.cc
  device/cuda/stream.cc
)
target_link_libraries(tandem_kernels PUBLIC CUDA::cudart_static CUDA::cublasLt)
