// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/trace.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <functional>
#include <iterator>
#include <sstream>

#include "kernels/device/error.h"
#include "runtime/text_file.h"

namespace tandem::launch {
namespace json = boost::json;
namespace {

std::istringstream open(const std::string& path) {
  auto text = runtime::read_text_file(path);
  TANDEM_REQUIRE(text, "cannot read ", path, "; name a readable file");
  return std::istringstream(*std::move(text));
}

constexpr const char* kAzure = "TIMESTAMP,ContextTokens,GeneratedTokens";
constexpr const char* kMooncake =
    R"({"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [ids]})";
constexpr const char* kShareGpt =
    R"({"conversations": [{"value": text}, ...]} or {"messages": [{"content": text}, ...]})";
constexpr const char* kCustom = R"({"prompt": text} or {"prompt": text, "output_tokens": tokens})";

/// The fault of the exception that is being handled, at a place that should hold `expected`.
ConfigError fault_at(const std::string& place, const std::string& expected) {
  try {
    throw;
  } catch (const ConfigError& error) {
    return ConfigError(concat(place, ": ", error.what()));
  } catch (const std::exception&) {  // of the JSON library: says nothing to people
    return ConfigError(concat(place, ": it is not ", expected));
  }
}

/// Calls `take` with each line that is not empty, without its end; what it throws gets the place.
void for_lines(std::istream& file, const std::string& path, const std::string& expected,
               const std::function<void(std::int64_t, const std::string&)>& take) {
  std::int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    try {
      take(number, line);
    } catch (const std::exception&) {
      throw fault_at(concat(path, " line ", number), expected);
    }
  }
}

void check_lengths(const BenchRequest& request) {
  TANDEM_REQUIRE(request.input > 0 && request.output > 0, "a request of ", request.input, " and ",
                 request.output, " tokens; both must be at least 1");
  TANDEM_REQUIRE(request.input <= kMaxBenchTokens && request.output <= kMaxBenchTokens,
                 "a request of ", request.input, " and ", request.output,
                 " tokens; leave out what has more than ", kMaxBenchTokens);
}

/// "2023-11-16 18:15:46.6805900" as seconds since some day.
double parse_time(const std::string& text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0;
  double second = 0;
  TANDEM_REQUIRE(std::sscanf(text.c_str(), "%d-%d-%d %d:%d:%lf", &year, &month, &day, &hour,
                             &minute, &second) == 6,
                 "\"", text, "\" is no time like 2023-11-16 18:15:46.68");
  std::tm date{};
  date.tm_year = year - 1900;
  date.tm_mon = month - 1;
  date.tm_mday = day;
  return static_cast<double>(timegm(&date)) + hour * 3600.0 + minute * 60.0 + second;
}

BenchRequest parse_azure(const std::string& line) {
  const std::size_t comma = line.find(',');
  BenchRequest request;
  int end = 0;
  const bool lengths =
      comma != std::string::npos &&
      std::sscanf(line.c_str() + comma, ",%d,%d%n", &request.input, &request.output, &end) == 2 &&
      comma + static_cast<std::size_t>(end) == line.size();
  TANDEM_REQUIRE(lengths, "it is not ", kAzure);
  request.at_s = parse_time(line.substr(0, comma));
  return request;
}

BenchRequest parse_mooncake(const std::string& line) {
  const json::value value = json::parse(line);
  BenchRequest request;
  request.at_s = value.at("timestamp").to_number<double>() / 1e3;
  request.input = value.at("input_length").to_number<std::int32_t>();
  request.output = value.at("output_length").to_number<std::int32_t>();
  for (const json::value& id : value.at("hash_ids").as_array())
    request.blocks.push_back(id.to_number<std::int64_t>());
  return request;
}

/// The first message and, where the next one is an answer, nothing of it: a length needs a
/// tokenizer, which a client of other servers does not have.
std::string first_message(const json::value& conversation) {
  const json::object& object = conversation.as_object();
  const json::value* turns = object.if_contains("conversations");
  if (turns == nullptr) turns = &object.at("messages");
  const json::object& turn = turns->as_array().at(0).as_object();
  const json::value* text = turn.if_contains("value");
  return std::string(text != nullptr ? text->as_string() : turn.at("content").as_string());
}

BenchRequest parse_text(const std::string& kind, const json::value& value, std::int32_t output) {
  BenchRequest request;
  request.output = output;
  if (kind == "sharegpt") {
    request.text = first_message(value);
  } else {
    request.text = std::string(value.at("prompt").as_string());
    if (const json::value* length = value.as_object().if_contains("output_tokens"))
      request.output = length->to_number<std::int32_t>();
  }
  TANDEM_REQUIRE(!request.text.empty() && request.output > 0,
                 "a request without a prompt or an answer");
  return request;
}

}  // namespace

std::vector<BenchRequest> read_trace(const std::string& source) {
  const std::size_t colon = source.find(':');
  const std::string kind = source.substr(0, colon);
  TANDEM_REQUIRE(colon != std::string::npos && (kind == "azure" || kind == "mooncake"), "--trace ",
                 source, " is not known; use --trace azure:FILE or --trace mooncake:FILE");
  const std::string path = source.substr(colon + 1);
  std::istringstream file = open(path);
  std::vector<BenchRequest> requests;
  for_lines(file, path, kind == "azure" ? kAzure : kMooncake,
            [&](std::int64_t number, const std::string& line) {
              if (kind == "azure" && number == 1 && line.rfind("TIMESTAMP", 0) == 0) return;
              BenchRequest request = kind == "azure" ? parse_azure(line) : parse_mooncake(line);
              check_lengths(request);
              request.number = static_cast<std::int64_t>(requests.size());
              requests.push_back(std::move(request));
            });
  std::stable_sort(requests.begin(), requests.end(),
                   [](const auto& a, const auto& b) { return a.at_s < b.at_s; });
  return requests;
}

std::vector<BenchRequest> read_texts(const std::string& kind, const std::string& path,
                                     std::int32_t output) {
  std::istringstream file = open(path);
  std::vector<BenchRequest> requests;
  const std::string expected = kind == "sharegpt" ? kShareGpt : kCustom;
  const auto add = [&](const json::value& value) {
    requests.push_back(parse_text(kind, value, output));
    requests.back().number = static_cast<std::int64_t>(requests.size()) - 1;
  };
  if ((file >> std::ws).peek() == '[') {
    try {
      const json::value list = json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
      for (const json::value& value : list.as_array()) add(value);
    } catch (const std::exception&) {
      throw fault_at(concat(path, " conversation ", requests.size() + 1), expected);
    }
  } else {
    for_lines(file, path, expected,
              [&](std::int64_t, const std::string& line) { add(json::parse(line)); });
  }
  return requests;
}

}  // namespace tandem::launch
