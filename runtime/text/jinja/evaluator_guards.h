// SPDX-License-Identifier: Apache-2.0
// Scope and output changes of the evaluator that end with a C++ block, errors included.
// Part of the evaluator: only its source files include this.
#pragma once

#include <string>
#include <utility>

#include "runtime/text/jinja/evaluator.h"

namespace tandem::runtime::jinja {

/// Makes `scope` the current one for its life.
class Evaluator::ScopeChange {
 public:
  ScopeChange(Evaluator& evaluator, ScopePtr scope)
      : evaluator_(evaluator), outer_(std::exchange(evaluator.scope_, std::move(scope))) {}
  ~ScopeChange() { evaluator_.scope_ = std::move(outer_); }
  ScopeChange(const ScopeChange&) = delete;
  ScopeChange& operator=(const ScopeChange&) = delete;

 private:
  Evaluator& evaluator_;
  ScopePtr outer_;
};

/// Collects what is printed during its life.
class Evaluator::Capture {
 public:
  explicit Capture(Evaluator& evaluator)
      : evaluator_(evaluator), outer_(std::exchange(evaluator.out_, &text_)) {}
  ~Capture() { evaluator_.out_ = outer_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  Value take() { return Value::string(std::move(text_)); }

 private:
  Evaluator& evaluator_;
  std::string* outer_;
  std::string text_;
};

}  // namespace tandem::runtime::jinja
