// SPDX-License-Identifier: Apache-2.0
// The device is a type. Ops are overloaded on `Context<Cpu>` / `Context<Cuda>`, owners of device
// resources are specialised, and the only run-time choice between devices is made in `launch`.
#pragma once

#include <concepts>

namespace tandem {

struct Cpu {};
struct Cuda {};

template <typename D>
concept Device = std::same_as<D, Cpu> || std::same_as<D, Cuda>;

/// An in-order queue of work on one device.
template <Device D>
class Stream;

/// A point in a stream that others can wait for.
template <Device D>
class Event;

/// A recorded sequence of work that is replayed with one call.
template <Device D>
class Graph;

/// What an op needs to run: streams, scratch memory, matmul handles. First argument of every op.
template <Device D>
class Context;

}  // namespace tandem
