// SPDX-License-Identifier: Apache-2.0
// The vector instructions of x86-64 as functions; nothing on other processors. What uses one says
// so by `__attribute__((target(...)))` and is only called where the processor has it.
#pragma once

#if defined(__x86_64__)
// GCC 12 takes values that intrinsics leave undefined on purpose for faults (its PR 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif
