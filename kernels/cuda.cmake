# The CUDA half of `kernels`: added to the same library, so that a missing op is a link error.
# libcuda is never linked (kernels/device/cuda/driver.h), so the programs start without a driver.
target_sources(tandem_kernels PRIVATE
  cuda/add_norm.cu
  cuda/all_reduce.cu
  cuda/all_reduce_grid.cc
  cuda/all_reduce_norm.cu
  cuda/attend.cc
  cuda/attend_any.cu
  cuda/attend_decode.cu
  cuda/attend_prefill.cu
  cuda/attend_prefill_mma.cu
  cuda/cold_timer.cc
  cuda/cublas_check.cc
  cuda/cublaslt_plan.cc
  cuda/decode_choice.cc
  cuda/embed.cu
  cuda/gate_up_act.cu
  cuda/gather_rows.cu
  cuda/gemv.cu
  cuda/gemv_add_norm.cu
  cuda/gemv_gate_up.cu
  cuda/gemv_head.cu
  cuda/gemv_qkv.cu
  cuda/head.cu
  cuda/linear_cublaslt.cc
  cuda/matmul_cache.cc
  cuda/qkv_project.cu
  cuda/process_logits.cu
  cuda/sample_best.cu
  cuda/sample_full.cu
  cuda/skinny.cu
  cuda/skinny_add_norm.cu
  cuda/skinny_gate_up.cu
  cuda/skinny_plan.cc
  cuda/skinny_qkv.cu
  cuda/step.cu
  cuda/sum_add_norm.cu
  cuda/tensor_map.cc
  cuda/tuning_file.cc
  device/cuda/annotate.cc
  device/cuda/buffer.cc
  device/cuda/check.cc
  device/cuda/context.cc
  device/cuda/device_info.cc
  device/cuda/driver.cc
  device/cuda/event.cc
  device/cuda/graph.cc
  device/cuda/stamp.cu
  device/cuda/stamps.cc
  device/cuda/stream.cc
)
# Names the kernels of this build, for times that are kept (cuda/decode_choice.h).
set(revision ${CMAKE_BINARY_DIR}/generated/kernels/cuda_revision.inc)
set(revision_script ${CMAKE_CURRENT_SOURCE_DIR}/cuda_revision.cmake)
file(GLOB revision_sources CONFIGURE_DEPENDS cuda/*.cc cuda/*.cu* cuda/*.h device/cuda/*.cuh)
add_custom_command(OUTPUT ${revision} DEPENDS ${revision_sources} ${revision_script} VERBATIM
  COMMAND ${CMAKE_COMMAND} -DFOLDER=${CMAKE_CURRENT_SOURCE_DIR} -DOUTPUT=${revision}
    "-DCOMPILER=${CMAKE_CUDA_COMPILER_VERSION} ${CMAKE_CUDA_FLAGS}" -P ${revision_script})
target_sources(tandem_kernels PRIVATE ${revision})
target_include_directories(tandem_kernels PRIVATE ${CMAKE_BINARY_DIR}/generated)
target_link_libraries(tandem_kernels PUBLIC CUDA::cudart_static CUDA::cublasLt)
