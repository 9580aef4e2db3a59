// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_check.h"

#include <mpi.h>

#include <string>

#include "kernels/device/error.h"

namespace tandem::comm::detail {

void throw_mpi(int code, const char* call, const char* file, int line) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  throw MpiError(concat("MPI call failed at ", file, ":", line, ": ", call, ": ",
                        length > 0 ? std::string(text, static_cast<std::size_t>(length))
                                   : concat("code ", code),
                        "; another rank has probably ended, look at the first error of the job"),
                 code);
}

}  // namespace tandem::comm::detail
