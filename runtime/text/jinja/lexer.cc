// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "kernels/device/error.h"
#include "runtime/text/jinja/utf8.h"

namespace tandem::runtime::jinja {
namespace {

constexpr auto kNowhere = std::string_view::npos;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_byte(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (pos_ < source_.size()) lex_root();
    add(TokenKind::kEnd, pos_);
    return std::move(tokens_);
  }

 private:
  bool at(std::string_view what) const { return source_.substr(pos_).starts_with(what); }
  char peek(std::size_t ahead = 0) const {
    return pos_ + ahead < source_.size() ? source_[pos_ + ahead] : '\0';
  }
  [[noreturn]] void fail(std::size_t place, const std::string& message) const {
    fail_at(source_, static_cast<Offset>(place), message);
  }
  Token& add(TokenKind kind, std::size_t place, std::string_view text = {}) {
    tokens_.push_back({kind, static_cast<Offset>(place), std::string(text), 0, 0});
    return tokens_.back();
  }
  std::size_t skip_space(std::size_t from) const {
    while (from < source_.size()) {
      const CodePoint c = decode_at(source_, from);
      if (!is_space(c.value)) break;
      from += c.size;
    }
    return from;
  }

  void lex_root();
  void add_text(std::size_t begin, std::size_t end, char sign, bool variable);
  void lex_comment(std::size_t open);
  bool lex_raw(std::size_t open);
  void lex_tag(bool variable);
  bool lex_tag_end(bool variable);
  void lex_number();
  void lex_string();
  void lex_operator();
  std::size_t end_of_raw_word(std::size_t from, std::string_view word) const;
  void finish_tag_end(std::size_t begin, std::size_t after, char sign, bool trim_newline);

  std::string_view source_;
  std::size_t pos_ = 0;
  bool line_starting_ = true;                       // what came last ended a line
  std::vector<std::pair<char, std::size_t>> open_;  // brackets of the current tag
  std::vector<Token> tokens_;
};

// Literal text up to the next tag, with the white space that the tag's sign takes away.
void Lexer::add_text(std::size_t begin, std::size_t end, char sign, bool variable) {
  std::string_view text = source_.substr(begin, end - begin);
  if (sign == '-') {
    text = strip_space(text, false, true);
  } else if (sign != '+' && !variable) {
    const std::size_t newline = text.rfind('\n');
    const std::size_t row = newline == kNowhere ? 0 : newline + 1;
    if ((row > 0 || line_starting_) && strip_space(text.substr(row), true, false).empty())
      text = text.substr(0, row);
  }
  if (!text.empty()) add(TokenKind::kText, begin, text);
}

void Lexer::lex_root() {
  std::size_t open = source_.find('{', pos_);
  while (open != kNowhere && (open + 1 == source_.size() ||
                              std::string_view("{%#").find(source_[open + 1]) == kNowhere))
    open = source_.find('{', open + 1);
  if (open == kNowhere) {
    add(TokenKind::kText, pos_, source_.substr(pos_));
    pos_ = source_.size();
    return;
  }
  const char kind = source_[open + 1];
  const char next = open + 2 < source_.size() ? source_[open + 2] : '\0';
  const char sign = next == '-' || next == '+' ? next : '\0';
  add_text(pos_, open, sign, kind == '{');
  pos_ = open + 2 + (sign ? 1 : 0);
  if (kind == '#') return lex_comment(open);
  if (kind == '%' && lex_raw(open)) return;
  add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, open);
  open_.clear();
  lex_tag(kind == '{');
}

// Moves behind an end tag that begins at `begin` and whose characters end at `after`.
void Lexer::finish_tag_end(std::size_t begin, std::size_t after, char sign, bool trim_newline) {
  pos_ = after;
  if (sign == '-') pos_ = skip_space(pos_);
  if (sign == '\0' && trim_newline && peek() == '\n') ++pos_;
  line_starting_ = pos_ > begin && source_[pos_ - 1] == '\n';
}

void Lexer::lex_comment(std::size_t open) {
  const std::size_t end = source_.find("#}", pos_);
  if (end == kNowhere) fail(open, "this comment is never closed; end it with #}");
  const char before = end > pos_ ? source_[end - 1] : '\0';
  finish_tag_end(end, end + 2, before == '-' || before == '+' ? before : '\0', true);
}

// Position behind optional space, `word` and optional space; kNowhere when `word` is not there.
std::size_t Lexer::end_of_raw_word(std::size_t from, std::string_view word) const {
  from = skip_space(from);
  if (!source_.substr(from).starts_with(word)) return kNowhere;
  return skip_space(from + word.size());
}

bool Lexer::lex_raw(std::size_t open) {
  const std::size_t end = end_of_raw_word(pos_, "raw");
  if (end == kNowhere) return false;
  const bool strip = source_.substr(end).starts_with("-%}");
  if (!strip && !source_.substr(end).starts_with("%}")) return false;
  finish_tag_end(end, end + (strip ? 3 : 2), strip ? '-' : '\0', false);
  const std::size_t begin = pos_;
  for (std::size_t tag = source_.find("{%", begin); tag != kNowhere;
       tag = source_.find("{%", tag + 1)) {
    const char next = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char sign = next == '-' || next == '+' ? next : '\0';
    const std::size_t tail = end_of_raw_word(tag + 2 + (sign ? 1 : 0), "endraw");
    if (tail == kNowhere) continue;
    const char tail_sign = tail < source_.size() && (source_[tail] == '-' || source_[tail] == '+')
                               ? source_[tail]
                               : '\0';
    const std::size_t close = tail + (tail_sign ? 1 : 0);
    if (!source_.substr(close).starts_with("%}")) continue;
    add_text(begin, tag, sign, false);
    finish_tag_end(tail, close + 2, tail_sign, true);
    return true;
  }
  fail(open, "this raw block is never closed; end it with {% endraw %}");
}

bool Lexer::lex_tag_end(bool variable) {
  const std::string_view close = variable ? "}}" : "%}";
  const char first = peek();
  const char sign = first == '-' || (first == '+' && !variable) ? first : '\0';
  if (!source_.substr(pos_ + (sign ? 1 : 0)).starts_with(close)) return false;
  add(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, pos_);
  finish_tag_end(pos_, pos_ + (sign ? 3 : 2), sign, !variable);
  return true;
}

void Lexer::lex_tag(bool variable) {
  const std::size_t begin = tokens_.back().offset;
  while (true) {
    pos_ = skip_space(pos_);
    if (pos_ >= source_.size())
      fail(begin, concat("this tag is never closed; end it with ", variable ? "}}" : "%}"));
    if (open_.empty() && lex_tag_end(variable)) return;
    const char c = peek();
    if (is_digit(c)) {
      lex_number();
    } else if (is_name_byte(c)) {
      const std::size_t start = pos_;
      while (pos_ < source_.size() && is_name_byte(source_[pos_])) ++pos_;
      add(TokenKind::kName, start, source_.substr(start, pos_ - start));
    } else if (c == '\'' || c == '"') {
      lex_string();
    } else {
      lex_operator();
    }
  }
}

void Lexer::lex_number() {
  const std::size_t start = pos_;
  const auto digits = [&](std::size_t from) {  // end of \d+(_\d+)*, or `from`
    std::size_t end = from;
    while (end < source_.size() &&
           (is_digit(source_[end]) || (source_[end] == '_' && end > from &&
                                       end + 1 < source_.size() && is_digit(source_[end + 1]))))
      ++end;
    return end;
  };
  std::size_t end = digits(start);
  bool real = false;
  const bool after_dot = start > 0 && source_[start - 1] == '.';
  if (!after_dot) {
    if (end < source_.size() && source_[end] == '.' && digits(end + 1) > end + 1) {
      end = digits(end + 1);
      real = true;
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      std::size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-'))
        ++exponent;
      if (digits(exponent) > exponent) {
        end = digits(exponent);
        real = true;
      }
    }
  }
  int base = 10;
  if (!real && source_[start] == '0' && start + 1 < source_.size()) {
    const char letter = static_cast<char>(source_[start + 1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    if (base != 10) {
      end = start + 2;
      while (end < source_.size() && is_name_byte(source_[end])) ++end;
    }
  }
  std::string text(source_.substr(start, end - start));
  std::erase(text, '_');
  pos_ = end;
  Token& token = add(real ? TokenKind::kFloat : TokenKind::kInteger, start, text);
  const char* first = text.data() + (base == 10 ? 0 : 2);
  const char* last = text.data() + text.size();
  if (real) {
    const auto result = std::from_chars(first, last, token.real);
    if (result.ec == std::errc::result_out_of_range)
      token.real = text.find('-') == kNowhere ? std::numeric_limits<double>::infinity() : 0.0;
    return;
  }
  if (base == 10 && text[0] == '0' && text.find_first_not_of('0') != kNowhere)
    fail(start, concat("the integer ", text, " begins with 0; write 0o for an octal number"));
  const auto result = std::from_chars(first, last, token.integer, base);
  if (result.ec == std::errc::result_out_of_range)
    fail(start, concat("the integer ", text, " does not fit in 64 bits"));
  if (result.ec != std::errc() || result.ptr != last)
    fail(start, concat("'", text, "' is not a number"));
}

void Lexer::lex_string() {
  const std::size_t start = pos_;
  const char quote = peek();
  std::size_t end = start + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) fail(start, "this string is never closed");
  add(TokenKind::kString, start,
      unescape(source_, source_.substr(start + 1, end - start - 1),
               static_cast<Offset>(start + 1)));
  pos_ = end + 1;
}

void Lexer::lex_operator() {
  constexpr std::array<std::string_view, 26> kOperators = {
      "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
  const auto* op = std::find_if(kOperators.begin(), kOperators.end(),
                                [&](std::string_view candidate) { return at(candidate); });
  if (op == kOperators.end()) {
    const std::size_t size = decode_at(source_, pos_).size;
    fail(pos_, concat("unexpected character '", source_.substr(pos_, size), "'"));
  }
  const char c = op->front();
  if (c == '(' || c == '[' || c == '{') open_.emplace_back(c, pos_);
  if (c == ')' || c == ']' || c == '}') {
    const char opener = c == ')' ? '(' : c == ']' ? '[' : '{';
    if (open_.empty()) fail(pos_, concat("unexpected '", c, "'"));
    if (open_.back().first != opener)
      fail(pos_, concat("unexpected '", c, "': '", open_.back().first, "' is still open"));
    open_.pop_back();
  }
  add(TokenKind::kOperator, pos_, *op);
  pos_ += op->size();
}

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace tandem::runtime::jinja
