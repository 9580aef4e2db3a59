// SPDX-License-Identifier: Apache-2.0
// Filters that look at attributes of items or at other filters: map, select, sort, groupby, ...
#include <algorithm>

#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/text_format.h"
#include "runtime/text/jinja/unicode.h"

namespace tandem::runtime::jinja {
namespace {

using Arguments = CallArguments;

/// "a.b.0" as the keys to follow, one after another.
std::vector<Value> attribute_path(Runtime& rt, const Value& attribute) {
  if (attribute.is_none()) return {};
  if (!attribute.is_string()) return {attribute};
  std::vector<Value> path;
  std::string_view rest = attribute.text();
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string part(rest.substr(0, dot));
    const bool number = !part.empty() && part.size() < 18 &&
                        part.find_first_not_of("0123456789") == std::string::npos;
    path.push_back(number ? Value::integer(std::stoll(part)) : rt.string(part));
    if (dot == std::string_view::npos) return path;
    rest.remove_prefix(dot + 1);
  }
}

Value follow(Runtime& rt, Value item, const std::vector<Value>& path, const Value* otherwise) {
  for (const Value& key : path) {
    item = get_item(rt, item, key);
    if (otherwise && !otherwise->is_none() && item.is_undefined()) item = *otherwise;
  }
  return item;
}

Value without_case(Runtime& rt, const Value& value) {
  return value.is_string() ? rt.string(to_lower(value.text())) : value;
}

/// What sort, unique, min, max and groupby compare: an item or one of its attributes.
class KeyOf {
 public:
  KeyOf(Runtime& rt, const Value& attribute, bool case_sensitive, Value otherwise = {})
      : rt_(rt),
        path_(attribute_path(rt, attribute)),
        case_sensitive_(case_sensitive),
        otherwise_(std::move(otherwise)) {}
  Value operator()(const Value& item) const {
    const Value key = follow(rt_, item, path_, &otherwise_);
    return case_sensitive_ ? key : without_case(rt_, key);
  }

 private:
  Runtime& rt_;
  std::vector<Value> path_;
  bool case_sensitive_;
  Value otherwise_;
};

using Keyed = std::vector<std::pair<Value, Value>>;  // key, item

void sort_keyed(Runtime& rt, Keyed& keyed, bool reverse) {
  // Python keeps equal items in order even when it sorts downwards.
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(rt, b.first, a.first) : less(rt, a.first, b.first);
  });
}

Keyed with_keys(const Items& items, const KeyOf& key_of) {
  Keyed keyed;
  for (const Value& item : *items) keyed.emplace_back(key_of(item), item);
  return keyed;
}

Value filter_map(Runtime& rt, const Value& value, const Arguments& arguments) {
  std::vector<Value> out;
  if (!truth(value)) return rt.iterator(std::move(out));
  const Items items = iterate(rt, value);
  if (arguments.positional.empty() && !arguments.named.empty()) {
    const Bound bound(rt, "map", arguments, {"attribute", "default"}, 1);
    const auto path = attribute_path(rt, bound.get(0));
    const Value otherwise = bound.get(1);
    for (const Value& item : *items) out.push_back(follow(rt, item, path, &otherwise));
    return rt.iterator(std::move(out));
  }
  if (arguments.positional.empty() || !arguments.positional[0].is_string())
    rt.fail("map needs the name of a filter, or attribute=");
  const std::string& name = arguments.positional[0].text();
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : *items) out.push_back(call_filter(rt, name, item, rest));
  return rt.iterator(std::move(out));
}

// select, reject, selectattr and rejectattr: [attribute,] [test, arguments...]
template <bool keep, bool by_attribute>
Value select(Runtime& rt, const Value& value, const Arguments& arguments) {
  std::vector<Value> out;
  if (!truth(value)) return rt.iterator(std::move(out));
  const Items items = iterate(rt, value);
  Arguments rest = arguments;
  std::vector<Value> path;
  const auto take = [&] {
    Value first = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return first;
  };
  if (by_attribute) {
    if (rest.positional.empty()) rt.fail("selectattr and rejectattr need the name of an attribute");
    path = attribute_path(rt, take());
  }
  const bool has_test = !rest.positional.empty();
  const std::string test = has_test ? to_text(rt, take()) : "";
  for (const Value& item : *items) {
    const Value looked_at = by_attribute ? follow(rt, item, path, nullptr) : item;
    const bool good = has_test ? call_test(rt, test, looked_at, rest) : truth(looked_at);
    if (good == keep) out.push_back(item);
  }
  return rt.iterator(std::move(out));
}

Value filter_sort(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = bound.truth(1, false);
  const Value attribute = bound.get(2);
  std::vector<KeyOf> keys;  // "a,b" sorts by a, then by b
  std::string_view names = attribute.is_string() ? attribute.text() : std::string_view();
  while (attribute.is_string()) {
    const std::size_t comma = names.find(',');
    keys.emplace_back(rt, rt.string(std::string(names.substr(0, comma))), case_sensitive);
    if (comma == std::string_view::npos) break;
    names.remove_prefix(comma + 1);
  }
  if (keys.empty()) keys.emplace_back(rt, attribute, case_sensitive);
  Keyed keyed;
  const Items items = iterate(rt, value);
  for (const Value& item : *items) {
    std::vector<Value> parts;
    for (const KeyOf& key : keys) parts.push_back(key(item));
    keyed.emplace_back(rt.list(std::move(parts)), item);
  }
  sort_keyed(rt, keyed, bound.truth(0, false));
  std::vector<Value> out;
  for (auto& entry : keyed) out.push_back(std::move(entry.second));
  return rt.list(std::move(out));
}

Value filter_dictsort(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.text(1, "key");
  if (by != "key" && by != "value") rt.fail("dictsort sorts by='key' or by='value'");
  if (value.is_undefined()) fail_undefined(rt, value);
  if (!value.is(Kind::kDict)) rt.fail("dictsort needs a dict, not ", value.type_name());
  Keyed keyed;
  for (const auto& [key, item] : value.dict().entries) {
    const Value& sorted_by = by == "key" ? key : item;
    keyed.emplace_back(bound.truth(0, false) ? sorted_by : without_case(rt, sorted_by),
                       rt.tuple({key, item}));
  }
  sort_keyed(rt, keyed, bound.truth(2, false));
  std::vector<Value> out;
  for (auto& entry : keyed) out.push_back(std::move(entry.second));
  return rt.list(std::move(out));
}

Value filter_unique(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "unique", arguments, {"case_sensitive", "attribute"});
  const KeyOf key_of(rt, bound.get(1), bound.truth(0, false));
  DictObject seen;
  std::vector<Value> out;
  const Items items = iterate(rt, value);
  for (const Value& item : *items) {
    const Value key = key_of(item);
    require_hashable(rt, key);
    if (!key.is_string()) rt.step(seen.entries.size());
    if (seen.find(key)) continue;
    seen.set(key, Value());
    out.push_back(item);
  }
  return rt.iterator(std::move(out));
}

template <bool largest>
Value filter_extreme(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const KeyOf key_of(rt, bound.get(1), bound.truth(0, false));
  const Keyed keyed = with_keys(iterate(rt, value), key_of);
  if (keyed.empty()) return Value::undefined("no aggregated item, the sequence was empty");
  const auto* best = &keyed[0];
  for (const auto& entry : keyed)
    if (largest ? less(rt, best->first, entry.first) : less(rt, entry.first, best->first))
      best = &entry;
  return best->second;
}

Value filter_groupby(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = bound.truth(2, false);
  Keyed keyed =
      with_keys(iterate(rt, value), KeyOf(rt, bound.get(0), case_sensitive, bound.get(1)));
  sort_keyed(rt, keyed, false);
  const KeyOf shown(rt, bound.get(0), true, bound.get(1));
  std::vector<Value> groups;
  for (std::size_t i = 0; i < keyed.size();) {
    std::vector<Value> members;
    const Value& key = keyed[i].first;
    const std::size_t first = i;
    for (; i < keyed.size() && equal(rt, keyed[i].first, key); ++i)
      members.push_back(keyed[i].second);
    groups.push_back(rt.sequence(
        Kind::kTuple, {shown(keyed[first].second), rt.list(std::move(members))}, "group"));
  }
  return rt.list(std::move(groups));
}

Value filter_sum(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "sum", arguments, {"attribute", "start"});
  const auto path = attribute_path(rt, bound.get(0));
  Value total = bound.get(1, Value::integer(0));
  if (total.is_string()) rt.fail("sum cannot add strings; use join");
  const Items items = iterate(rt, value);
  for (const Value& item : *items)
    total = arithmetic(rt, Operator::kAdd, total, follow(rt, item, path, nullptr));
  return total;
}

Value filter_join(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "join", arguments, {"d", "attribute"});
  const auto path = bound.set(1) ? attribute_path(rt, bound.get(1)) : std::vector<Value>();
  const std::string separator = bound.has(0) ? to_text(rt, bound.get(0)) : "";
  std::string out;
  bool first = true;
  const Items items = iterate(rt, value);
  for (const Value& item : *items) {
    const std::string part = to_text(rt, follow(rt, item, path, nullptr));
    rt.charge(part.size() + separator.size());
    if (!std::exchange(first, false)) out += separator;
    out += part;
  }
  return Value::string(std::move(out));
}

Value filter_attr(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "attr", arguments, {"name"}, 1);
  if (value.is_undefined()) fail_undefined(rt, value);
  const Value found = get_attribute(rt, value, bound.text(0, ""));
  const bool only_item = value.is(Kind::kDict) && !found.is(Kind::kDynamic);
  return only_item ? Value::undefined("dict objects have no such attribute") : found;
}

constexpr MethodEntry kFilters[] = {
    {"attr", filter_attr},
    {"dictsort", filter_dictsort},
    {"groupby", filter_groupby},
    {"join", filter_join},
    {"map", filter_map},
    {"max", filter_extreme<true>},
    {"min", filter_extreme<false>},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

}  // namespace

Method find_selection_filter(std::string_view name) { return find_in(kFilters, name); }

}  // namespace tandem::runtime::jinja
