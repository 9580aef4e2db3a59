// SPDX-License-Identifier: Apache-2.0
// The CPU's side of `Stamps` (kernels/device/cuda/stamps.h): ops run where they are called, so the
// context's recorder times them itself and there is nothing to bring back from a device.
#pragma once

#include "kernels/device/cpu/context.h"

namespace tandem {

template <>
class Stamps<Cpu> {
 public:
  struct List {};
  Stamps(Context<Cpu>& ctx, Recorder* recorder) { ctx.record_to(recorder); }

  bool begin_step(Context<Cpu>&, int) { return false; }
  template <typename Body>
  void into(Context<Cpu>&, List&, bool, Body&& body) {
    body();
  }
  List& eager_list() { return list_; }
  void use(const List&) {}
  void end_step(Context<Cpu>&) {}
  void collect(int) {}
  void finish(Context<Cpu>&) {}

 private:
  List list_;
};

}  // namespace tandem
