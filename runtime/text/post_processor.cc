// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/post_processor.h"

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

TokenId id_of(const JsonNode& node) {
  const std::int64_t id = node.integer();
  if (id < 0 || id > kMaxTokenId) node.fail(concat("must be between 0 and ", kMaxTokenId));
  return static_cast<TokenId>(id);
}

}  // namespace

void PostProcessor::wrap(std::vector<TokenId> before, const std::vector<TokenId>& after) {
  before.insert(before.end(), prefix_.begin(), prefix_.end());
  prefix_ = std::move(before);
  suffix_.insert(suffix_.end(), after.begin(), after.end());
}

void PostProcessor::add_template(const JsonNode& node) {
  const JsonNode pieces = node.at("single");
  std::vector<TokenId> before, after;
  int sequences = 0;
  for (std::size_t i = 0; i < pieces.array().size(); ++i) {
    const JsonNode piece = pieces.element(i);
    if (piece.find("Sequence")) {
      ++sequences;
      continue;
    }
    const std::string_view name = piece.at("SpecialToken").at("id").string();
    const JsonNode ids = node.at("special_tokens").at(name).at("ids");
    for (std::size_t k = 0; k < ids.array().size(); ++k) {
      (sequences == 0 ? before : after).push_back(id_of(ids.element(k)));
    }
  }
  if (sequences != 1) pieces.fail("must hold the text exactly once");
  wrap(std::move(before), after);
}

void PostProcessor::add(const JsonNode& node) {
  const std::string_view type = node.at("type").string();
  if (type == "Sequence") {
    const JsonNode list = node.at("processors");
    for (std::size_t i = 0; i < list.array().size(); ++i) add(list.element(i));
  } else if (type == "TemplateProcessing") {
    add_template(node);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    for (const char* key : {"cls", "sep"}) {
      if (node.at(key).array().size() != 2) node.at(key).fail("must be a token and its id");
    }
    wrap({id_of(node.at("cls").element(1))}, {id_of(node.at("sep").element(1))});
  } else if (type != "ByteLevel") {  // ByteLevel only trims offsets.
    node.fail(concat("is the unknown post-processor '", type, "'"));
  }
}

PostProcessor PostProcessor::from_json(const JsonNode& node) {
  PostProcessor processor;
  processor.add(node);
  return processor;
}

}  // namespace tandem::runtime
