// SPDX-License-Identifier: Apache-2.0
// printf-style formatting, `text % arguments`, and floats with a given precision.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/text_format.h"
#include "runtime/text/jinja/utf8.h"

namespace tandem::runtime::jinja {
namespace {

constexpr std::int64_t kMaxWidth = 1'000'000;

struct Directive {
  bool left = false, plus = false, space = false, alternate = false, zero = false;
  std::int64_t width = 0, precision = -1;
  char type = '\0';
};

/// Reads one `text % arguments` from left to right.
class PercentFormat {
 public:
  PercentFormat(Runtime& rt, std::string_view format, const Value& arguments)
      : rt_(rt),
        format_(format),
        arguments_(arguments),
        tuple_(arguments.is(Kind::kTuple) ? arguments.sequence().items.size() : 1) {}

  std::string run() {
    while (at_ < format_.size()) {
      const std::size_t percent = std::min(format_.find('%', at_), format_.size());
      out_ += format_.substr(at_, percent - at_);
      at_ = percent + 1;
      if (percent < format_.size()) write_directive();
    }
    const bool mapping = arguments_.is(Kind::kDict);
    const bool unused = arguments_.is(Kind::kTuple)
                            ? next_ < tuple_
                            : next_ == 0 && !mapping && !arguments_.is(Kind::kList);
    if (unused) rt_.fail("not all arguments were used by the format string");
    return std::move(out_);
  }

 private:
  char peek() const { return at_ < format_.size() ? format_[at_] : '\0'; }

  Value next_argument() {
    if (arguments_.is(Kind::kTuple)) {
      if (next_ >= tuple_) rt_.fail("not enough arguments for the format string");
      return arguments_.sequence().items[next_++];
    }
    if (next_++ > 0) rt_.fail("not enough arguments for the format string");
    return arguments_;
  }

  std::int64_t read_size() {
    if (peek() == '*') {
      ++at_;
      const Value value = next_argument();
      if (!value.is_integral()) rt_.fail("* in a format string needs an integer");
      return value.as_int();
    }
    std::int64_t size = 0;
    while (peek() >= '0' && peek() <= '9' && size < kMaxWidth)
      size = size * 10 + (format_[at_++] - '0');
    return size;
  }

  void read_flags(Directive& directive) {
    for (bool more = true; more;) {
      switch (peek()) {
        case '-':
          directive.left = true;
          break;
        case '+':
          directive.plus = true;
          break;
        case ' ':
          directive.space = true;
          break;
        case '#':
          directive.alternate = true;
          break;
        case '0':
          directive.zero = true;
          break;
        default:
          more = false;
      }
      if (more) ++at_;
    }
  }

  void write_directive() {
    rt_.step();
    Directive directive;
    std::optional<Value> named;
    if (peek() == '(') {
      const std::size_t end = format_.find(')', at_);
      if (end == std::string_view::npos) rt_.fail("'%(' in a format string is never closed");
      if (!arguments_.is(Kind::kDict)) rt_.fail("'%(name)' in a format string needs a dict");
      const std::string_view key = format_.substr(at_ + 1, end - at_ - 1);
      const Value* found = arguments_.dict().find(key);
      if (!found) rt_.fail("the format string needs '", key, "', which was not given");
      named = *found;
      at_ = end + 1;
    }
    read_flags(directive);
    directive.width = read_size();
    if (directive.width < 0) {
      directive.left = true;
      directive.width = -std::max(directive.width, -kMaxWidth);
    }
    if (peek() == '.') {
      ++at_;
      directive.precision = std::max<std::int64_t>(0, read_size());
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    directive.type = peek();
    ++at_;
    if (directive.width >= kMaxWidth || directive.precision > 1000)
      rt_.fail("the format string asks for too many characters");
    if (directive.type == '%') {
      out_ += "%";
      return;
    }
    if (std::string_view("sradiuxXoeEfFgGc").find(directive.type) == std::string_view::npos ||
        directive.type == '\0')
      rt_.fail("unsupported format character '", std::string_view(&directive.type, 1), "'");
    write(directive, named ? *named : next_argument());
  }

  void write(const Directive& directive, const Value& value) {
    std::string sign, body;
    bool numeric = true;
    switch (directive.type) {
      case 's':
      case 'r':
      case 'a':
        body = directive.type == 's' ? to_text(rt_, value) : repr(rt_, value);
        if (directive.precision >= 0)
          body = body.substr(0, byte_offset(body, static_cast<std::size_t>(directive.precision)));
        numeric = false;
        break;
      case 'c':
        if (value.is_integral() && value.as_int() >= 0 && value.as_int() <= 0x10FFFF)
          append_utf8(body, static_cast<char32_t>(value.as_int()));
        else if (value.is_string() && count_characters(value.text()) == 1)
          body = value.text();
        else
          rt_.fail("%c needs one character");
        numeric = false;
        break;
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        body = write_real(directive, value, sign);
        break;
      default:
        body = write_integer(directive, value, sign);
    }
    pad(directive, sign, body, numeric);
  }

  std::string write_real(const Directive& directive, const Value& value, std::string& sign) {
    if (!value.is_number())
      rt_.fail("%", directive.type, " needs a number, not ", value.type_name());
    const double real = value.as_real();
    sign = std::signbit(real) && !std::isnan(real) ? "-" : "";
    const int precision = directive.precision < 0 ? 6 : static_cast<int>(directive.precision);
    return format_float(std::fabs(real), precision, directive.type, directive.alternate);
  }

  std::string write_integer(const Directive& directive, const Value& value, std::string& sign) {
    const bool decimal = std::string_view("diu").find(directive.type) != std::string_view::npos;
    std::int64_t number = value.as_int();
    if (decimal && value.is(Kind::kFloat)) {
      if (!(std::fabs(value.as_real()) < 9e18)) rt_.fail("%d needs a number that fits in 64 bits");
      number = static_cast<std::int64_t>(value.as_real());
    } else if (!value.is_integral()) {
      rt_.fail("%", directive.type, " needs an integer, not ", value.type_name());
    }
    const bool negative = number < 0;
    const std::string spec(1, decimal ? 'd' : directive.type);
    std::string digits = format_spec(rt_, Value::integer(number), spec);
    if (negative) digits.erase(0, 1);
    const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(0, directive.precision));
    if (digits.size() < wanted) digits.insert(0, wanted - digits.size(), '0');
    sign = negative ? "-" : "";
    if (directive.alternate && !decimal) prefix_ = std::string("0") + directive.type;
    return digits;
  }

  void pad(const Directive& directive, std::string sign, const std::string& body, bool numeric) {
    if (numeric && sign.empty()) sign = directive.plus ? "+" : directive.space ? " " : "";
    sign += std::exchange(prefix_, "");
    const auto size = static_cast<std::int64_t>(sign.size() + count_characters(body));
    const auto missing =
        static_cast<std::size_t>(std::max<std::int64_t>(0, directive.width - size));
    rt_.charge(missing + body.size());
    const bool zeros = numeric && directive.zero && !directive.left;
    if (!directive.left && !zeros) out_.append(missing, ' ');
    out_ += sign;
    if (zeros) out_.append(missing, '0');
    out_ += body;
    if (directive.left) out_.append(missing, ' ');
  }

  Runtime& rt_;
  std::string_view format_;
  const Value& arguments_;
  std::size_t tuple_, next_ = 0, at_ = 0;
  std::string prefix_, out_;
};

}  // namespace

std::string format_float(double value, int precision, char type, bool alternate) {
  if (std::isnan(value)) return type == 'E' || type == 'F' || type == 'G' ? "NAN" : "nan";
  if (std::isinf(value)) {
    const bool upper = type == 'E' || type == 'F' || type == 'G';
    return std::string(value < 0 ? "-" : "") + (upper ? "INF" : "inf");
  }
  const std::string format = std::string(alternate ? "%#.*" : "%.*") + type;
  const int size = std::snprintf(nullptr, 0, format.c_str(), precision, value);
  std::string out(static_cast<std::size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), format.c_str(), precision, value);
  out.pop_back();
  return out;
}

std::string format_percent(Runtime& rt, std::string_view format, const Value& arguments) {
  return PercentFormat(rt, format, arguments).run();
}

}  // namespace tandem::runtime::jinja
