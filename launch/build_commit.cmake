# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT with the commit of SOURCE; leaves the file alone when nothing changed.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --exclude=* --abbrev=10
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "constexpr const char* kBuildCommit = \"${commit}\";\n")
