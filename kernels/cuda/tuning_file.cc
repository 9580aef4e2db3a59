// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/tuning_file.h"

#include <cctype>
#include <fstream>

#include "kernels/cuda/cublas_check.h"

namespace tandem::kernels {
namespace {

constexpr int kFormat = 4;

std::string word(std::string text) {
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '-';
  return text;
}

/// "580.95.05", or where the module does not say, the CUDA that the driver supports.
std::string driver_version() {
  std::ifstream in("/sys/module/nvidia/version");
  std::string text;
  if (std::getline(in, text) && !text.empty()) return text;
  int version = 0;
  TANDEM_CHECK(cudaDriverGetVersion(&version));
  return concat("cuda", version);
}

}  // namespace

TuningFile tuning_file(const std::filesystem::path& folder, const TuningMachine& machine,
                       const std::string& kind, const std::string& revision) {
  const std::string name = concat(kind, "-", word(machine.gpu), "-", machine.num_sms, "sms-driver-",
                                  word(machine.driver), "-cublaslt-", machine.cublaslt, ".txt");
  return {folder / name,
          concat("tandem ", kind, " v", kFormat, ", ", word(machine.gpu), " of ", machine.num_sms,
                 " SMs, driver ", word(machine.driver), ", CUDA ", machine.cuda, ", cuBLASLt ",
                 machine.cublaslt, revision.empty() ? "" : ", kernels ", revision)};
}

TuningFile tuning_file(const CudaOptions& options, const std::string& kind,
                       const std::string& revision) {
  cudaDeviceProp prop{};
  TANDEM_CHECK(cudaGetDeviceProperties(&prop, options.device));
  TuningMachine machine{prop.name, driver_version(), prop.multiProcessorCount, 0,
                        cublasLtGetVersion()};
  TANDEM_CHECK(cudaRuntimeGetVersion(&machine.cuda));
  return tuning_file(options.tuning_cache_folder.empty()
                         ? default_cache_folder()
                         : std::filesystem::path(options.tuning_cache_folder),
                     machine, kind, revision);
}

}  // namespace tandem::kernels
