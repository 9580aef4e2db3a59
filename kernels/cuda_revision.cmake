# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT with a hash of COMPILER and of all sources of CUDA kernels in FOLDER (kernels/).
file(GLOB sources RELATIVE ${FOLDER} ${FOLDER}/cuda/*.cc ${FOLDER}/cuda/*.cu*
  ${FOLDER}/cuda/*.h ${FOLDER}/device/cuda/*.cuh)
set(all "${COMPILER}")
foreach(source ${sources})
  file(SHA256 ${FOLDER}/${source} hash)
  string(APPEND all "\n${source} ${hash}")
endforeach()
string(SHA256 revision "${all}")
string(SUBSTRING ${revision} 0 16 revision)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT
  "constexpr const char* kCudaRevision = \"${revision}\";\n")
