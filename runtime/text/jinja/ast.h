// SPDX-License-Identifier: Apache-2.0
// A parsed template. Expressions and statements are two plain node types with a kind; the comment
// at each kind says which fields it uses. Immutable after parsing; `depth` is bounded by the
// parser, so trees can be walked and freed by recursion.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/source.h"
#include "runtime/text/jinja/value.h"

namespace tandem::runtime::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind : std::uint8_t {
  kConstant,     ///< constant
  kName,         ///< name
  kTuple,        ///< children
  kList,         ///< children
  kDict,         ///< children: key, value, key, value, ...
  kAttribute,    ///< children[0] . name
  kItem,         ///< children[0] [ children[1] ]
  kSlice,        ///< children: start, stop, step; each may be null. Only as an item's index.
  kCall,         ///< children[0] ( arguments )
  kFilter,       ///< children[0] | name ( arguments ); null child: the text of the block
  kTest,         ///< children[0] is name ( arguments )
  kConditional,  ///< children: value, condition, other (may be null)
  kAnd,          ///< children[0] and children[1]
  kOr,
  kNot,      ///< not children[0]
  kUnary,    ///< op: - or +
  kBinary,   ///< children[0] op children[1]
  kConcat,   ///< children joined as text
  kCompare,  ///< children[0] comparisons[0] children[1] comparisons[1] children[2] ...
};

enum class Operator : std::uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower
};
enum class Comparison : std::uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct Arguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star, star_star;  ///< *args and **kwargs, or null.
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  Offset offset = 0;
  int depth = 1;
  Operator op = Operator::kAdd;
  std::string name;
  Value constant;
  std::vector<ExpressionPtr> children;
  std::vector<Comparison> comparisons;
  Arguments arguments;
};

/// What `set` and `for` assign to: a name, a namespace's attribute, or a tuple of targets.
struct Target {
  Offset offset = 0;
  bool is_tuple = false;
  std::string name;
  std::string attribute;  ///< Not empty: `name.attribute` of a namespace.
  std::vector<Target> items;
};

struct Statement;
using Block = std::vector<Statement>;

enum class StatementKind : std::uint8_t {
  kText,         ///< text
  kPrint,        ///< expressions, one after another
  kFor,          ///< target, expressions[0] iterable, [1] condition or null; bodies: loop, else
  kIf,           ///< expressions: conditions; bodies: one per condition, then else if there is one
  kSet,          ///< target = expressions[0]
  kSetBlock,     ///< target = text of bodies[0] through the filter expressions[0] (or null)
  kMacro,        ///< name, parameters, bodies[0]
  kCallBlock,    ///< expressions[0] is the call; parameters and bodies[0] are its `caller`
  kFilterBlock,  ///< text of bodies[0] through the filter expressions[0]
  kWith,         ///< targets[i] = expressions[i] in bodies[0]
  kScope,        ///< bodies[0] in a scope of its own (generation, autoescape, block)
  kBreak,
  kContinue,
};

struct Parameters {
  std::vector<std::string> names;
  std::vector<ExpressionPtr> defaults;  ///< One per name; null where there is none.
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  Offset offset = 0;
  std::string text;  ///< Literal text, or a macro's name.
  bool recursive = false;
  std::vector<ExpressionPtr> expressions;
  std::vector<Target> targets;
  std::vector<Block> bodies;
  Parameters parameters;
};

}  // namespace tandem::runtime::jinja
