// SPDX-License-Identifier: Apache-2.0
// Boost.JSON is used header-only; this is the one file that compiles its bodies.
#include <boost/json/src.hpp>
