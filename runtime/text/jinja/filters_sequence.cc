// SPDX-License-Identifier: Apache-2.0
// Filters on whole sequences: length, first, last, list, reverse, batch, slice, items, default.
#include <algorithm>

#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/text_format.h"
#include "runtime/text/jinja/utf8.h"

namespace tandem::runtime::jinja {
namespace {

using Arguments = CallArguments;

Value filter_length(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "length", arguments, {});
  return Value::integer(length(rt, value));
}

Value filter_first(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "first", arguments, {});
  if (value.is(Kind::kIterator)) {  // takes one item and leaves the rest
    const SequenceObject& object = value.sequence();
    if (object.read < object.items.size()) return object.items[object.read++];
  } else {
    const Items items = iterate(rt, value);
    if (!items->empty()) return items->front();
  }
  return Value::undefined("no first item, the sequence was empty");
}

Value filter_last(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "last", arguments, {});
  if (value.is(Kind::kIterator)) rt.fail("'generator' object is not reversible; use list first");
  const Items items = iterate(rt, value);
  return items->empty() ? Value::undefined("no last item, the sequence was empty") : items->back();
}

Value filter_list(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "list", arguments, {});
  return rt.list(*iterate(rt, value));
}

Value filter_reverse(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "reverse", arguments, {});
  if (value.is_string()) return get_slice(rt, value, {}, {}, Value::integer(-1));
  std::vector<Value> items = *iterate(rt, value);
  std::reverse(items.begin(), items.end());
  return value.is(Kind::kIterator) ? rt.list(std::move(items)) : rt.iterator(std::move(items));
}

Value filter_items(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "items", arguments, {});
  std::vector<Value> pairs;
  if (!value.is_undefined()) {
    if (!value.is(Kind::kDict)) rt.fail("items needs a dict, not ", value.type_name());
    for (const auto& [key, item] : value.dict().entries) pairs.push_back(rt.tuple({key, item}));
  }
  return rt.iterator(std::move(pairs));
}

Value filter_batch(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t size = bound.integer(0, 0);
  std::vector<Value> rows, row;
  const Items items = iterate(rt, value);
  for (const Value& item : *items) {
    if (static_cast<std::int64_t>(row.size()) == size)
      rows.push_back(rt.list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (bound.set(1) && size > static_cast<std::int64_t>(row.size())) {
      if (size > static_cast<std::int64_t>(kMaxBytes)) rt.charge(kMaxBytes + 1);
      rt.charge(static_cast<std::uint64_t>(size) * sizeof(Value));
      row.resize(static_cast<std::size_t>(size), bound.get(1));
    }
    rows.push_back(rt.list(std::move(row)));
  }
  return rt.iterator(std::move(rows));
}

Value filter_slice(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "slice", arguments, {"slices", "fill_with"}, 1);
  const std::int64_t slices = bound.integer(0, 0);
  const Items items = iterate(rt, value);
  if (slices == 0) rt.fail("division by zero: slice needs at least one slice");
  if (slices > 0) rt.step(static_cast<std::uint64_t>(slices));
  const auto size = static_cast<std::int64_t>(items->size());
  std::vector<Value> columns;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < slices; ++i) {
    const bool extra = i < size % slices;
    const std::int64_t end = begin + size / slices + (extra ? 1 : 0);
    std::vector<Value> column(items->begin() + begin, items->begin() + end);
    if (bound.set(1) && !extra) column.push_back(bound.get(1));
    columns.push_back(rt.list(std::move(column)));
    begin = end;
  }
  return rt.iterator(std::move(columns));
}

Value filter_default(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "default", arguments, {"default_value", "boolean"});
  const bool replace = value.is_undefined() || (bound.truth(1, false) && !truth(value));
  return replace ? bound.get(0, rt.string("")) : value;
}

Value filter_tojson(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.truth(0, false);
  style.sort_keys = bound.truth(3, false);
  if (bound.set(1)) {
    const Value indent = bound.get(1);
    style.has_indent = true;
    style.item_separator = ",";
    if (indent.is_string())
      style.indent = indent.text();
    else
      style.indent = repeat(rt, rt.string(" "), bound.integer(1, 0)).text();
  }
  if (bound.set(2)) {
    const Items separators = iterate(rt, bound.get(2));
    if (separators->size() != 2 || !(*separators)[0].is_string() || !(*separators)[1].is_string())
      rt.fail("tojson needs two strings as separators, such as separators=(',', ':')");
    style.item_separator = (*separators)[0].text();
    style.key_separator = (*separators)[1].text();
  }
  return rt.string(to_json(rt, value, style));
}

constexpr MethodEntry kFilters[] = {
    {"batch", filter_batch},     {"count", filter_length},  {"d", filter_default},
    {"default", filter_default}, {"first", filter_first},   {"items", filter_items},
    {"last", filter_last},       {"length", filter_length}, {"list", filter_list},
    {"reverse", filter_reverse}, {"slice", filter_slice},   {"tojson", filter_tojson},
};

}  // namespace

Method find_sequence_filter(std::string_view name) { return find_in(kFilters, name); }

}  // namespace tandem::runtime::jinja
