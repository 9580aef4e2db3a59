// SPDX-License-Identifier: Apache-2.0
// Names the files that keep times of matmuls. A time holds for one GPU model (and the SMs that are
// there of it), driver, CUDA and cuBLASLt, and of a kernel of Tandem's for its revision. Other
// GPUs, drivers and libraries have files of their own, so that hosts of different kinds may share a
// home. Plain functions.
#pragma once

#include "kernels/cuda/matmul_cache.h"
#include "kernels/device/cuda/context.h"

namespace tandem::kernels {

/// What times depend on, beside the kernels.
struct TuningMachine {
  std::string gpu, driver;  ///< As they call themselves.
  int num_sms = 0;
  int cuda = 0;              ///< Version of the runtime.
  std::size_t cublaslt = 0;  ///< Version.
};

/// `kind` is part of the name, `revision` of what the times are of: a file of another is replaced.
TuningFile tuning_file(const std::filesystem::path& folder, const TuningMachine& machine,
                       const std::string& kind, const std::string& revision);
/// The same for the GPU, and in the folder, of the options.
TuningFile tuning_file(const CudaOptions& options, const std::string& kind,
                       const std::string& revision);

}  // namespace tandem::kernels
