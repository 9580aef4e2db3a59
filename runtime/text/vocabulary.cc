// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/vocabulary.h"

#include <algorithm>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

constexpr std::size_t kBlockBytes = 1 << 16;

}  // namespace

std::string_view Vocabulary::keep(std::string_view text) {
  if (blocks_.empty() || blocks_.back().capacity() - blocks_.back().size() < text.size() + 1) {
    blocks_.emplace_back().reserve(std::max(kBlockBytes, text.size() + 1));
  }
  std::string& block = blocks_.back();
  const std::size_t begin = block.size();
  block.append(text);
  return {block.data() + begin, text.size()};
}

void Vocabulary::add(std::string_view text, std::int64_t id) {
  TANDEM_REQUIRE(id >= 0 && id <= kMaxTokenId, "the token '", text, "' has the id ", id,
                 ", which is not between 0 and ", kMaxTokenId, "; download the tokenizer again");
  const auto index = static_cast<std::size_t>(id);
  if (index >= texts_.size()) texts_.resize(index + 1);
  TANDEM_REQUIRE(texts_[index].data() == nullptr, "the tokens '", texts_[index], "' and '", text,
                 "' have the same id ", id, "; download the tokenizer again");
  const std::string_view kept = keep(text);
  texts_[index] = kept;
  TANDEM_REQUIRE(ids_.emplace(kept, static_cast<TokenId>(id)).second, "the token '", text,
                 "' has two ids, ", ids_.at(kept), " and ", id, "; download the tokenizer again");
}

}  // namespace tandem::runtime
