// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/text_format.h"
#include "runtime/text/jinja/utf8.h"

namespace tandem::runtime::jinja {
namespace {

void append_escape(std::string& out, char32_t unit) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out.push_back(kDigits[unit >> shift & 0xF]);
}

void append_json_text(std::string& out, std::string_view text, bool ensure_ascii) {
  constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
  constexpr std::string_view kLetters = "\"\\nrtfb";
  out.push_back('"');
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_at(text, i);
    const std::size_t found =
        c.value < 0x80 ? kShort.find(static_cast<char>(c.value)) : std::string_view::npos;
    if (found != std::string_view::npos) {
      out.push_back('\\');
      out.push_back(kLetters[found]);
    } else if (c.value < 0x20 || (ensure_ascii && c.value >= 0x7F && c.value < 0x10000)) {
      append_escape(out, c.value);
    } else if (ensure_ascii && c.value >= 0x10000) {
      append_escape(out, 0xD800 + ((c.value - 0x10000) >> 10));
      append_escape(out, 0xDC00 + (c.value & 0x3FF));
    } else {
      out += text.substr(i, c.size);
    }
    i += c.size;
  }
  out.push_back('"');
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_repr(value);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& rt, const JsonStyle& style) : rt_(rt), style_(style) {}

  void write(const Value& value) {
    const Runtime::Level level(rt_);
    rt_.step();
    const std::size_t before = out_.size();
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        break;
      case Kind::kBool:
        out_ += value.as_int() ? "true" : "false";
        break;
      case Kind::kInt:
        out_ += std::to_string(value.as_int());
        break;
      case Kind::kFloat:
        out_ += json_float(value.as_real());
        break;
      case Kind::kString:
        append_json_text(out_, value.text(), style_.ensure_ascii);
        rt_.charge(out_.size() - before);
        break;
      case Kind::kList:
      case Kind::kTuple:
        write_list(value.sequence().items);
        break;
      case Kind::kDict:
        write_dict(value.dict());
        break;
      default:
        rt_.fail("object of type ", value.type_name(), " cannot be written as JSON by tojson");
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void new_line() {
    if (!style_.has_indent) return;
    rt_.charge(style_.indent.size() * nesting_);
    out_ += "\n";
    for (std::size_t i = 0; i < nesting_; ++i) out_ += style_.indent;
  }

  void write_list(const std::vector<Value>& items) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += "[";
    ++nesting_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line();
      write(items[i]);
    }
    --nesting_;
    new_line();
    out_ += "]";
  }

  void write_dict(const DictObject& dict) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return less(rt_, a->first, b->first); });
    out_ += "{";
    ++nesting_;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line();
      write_key(entries[i]->first);
      out_ += style_.key_separator;
      write(entries[i]->second);
    }
    --nesting_;
    new_line();
    out_ += "}";
  }

  void write_key(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        append_json_text(out_, key.text(), style_.ensure_ascii);
        break;
      case Kind::kNone:
        out_ += "\"null\"";
        break;
      case Kind::kBool:
        out_ += key.as_int() ? "\"true\"" : "\"false\"";
        break;
      case Kind::kInt:
        out_ += "\"" + std::to_string(key.as_int()) + "\"";
        break;
      case Kind::kFloat:
        out_ += "\"" + json_float(key.as_real()) + "\"";
        break;
      default:
        rt_.fail("keys of JSON objects must be str, int, float, bool or None, not ",
                 key.type_name());
    }
  }

  Runtime& rt_;
  const JsonStyle& style_;
  std::string out_;
  std::size_t nesting_ = 0;
};

}  // namespace

std::string to_json(Runtime& rt, const Value& value, const JsonStyle& style) {
  JsonWriter writer(rt, style);
  writer.write(value);
  return writer.take();
}

}  // namespace tandem::runtime::jinja
