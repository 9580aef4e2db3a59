// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/safetensors_reader.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "kernels/device/error.h"
#include "runtime/json_file.h"
#include "runtime/weights/dequantize.h"

namespace tandem::runtime {
namespace json = boost::json;
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as the format's own library
constexpr std::int64_t kMaxElements = std::int64_t{1} << 46;
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

/// One file's header while it is turned into entries.
struct Header {
  const MappedFile& file;
  std::span<const std::byte> data;

  [[noreturn]] void damaged(std::string_view tensor, const std::string& what) const {
    throw ConfigError(concat(file.path(), ": tensor ", tensor, " ", what,
                             "; the file is damaged, download it again"));
  }
};

StorageType storage_type(const Header& header, std::string_view name, const json::value* dtype) {
  if (dtype == nullptr || !dtype->is_string()) header.damaged(name, "has no dtype");
  const json::string& text = dtype->get_string();
  if (text == "F32") return StorageType::kF32;
  if (text == "F16") return StorageType::kF16;
  if (text == "BF16") return StorageType::kBF16;
  throw ConfigError(concat(header.file.path(), ": tensor ", name, " has type ",
                           std::string_view(text),
                           ", which Tandem does not read; use a BF16, F16 or F32 checkpoint"));
}

std::int64_t whole_number(const json::value& value) {
  return value.is_int64() ? value.get_int64() : -1;
}

TensorEntry read_entry(const Header& header, std::string_view name, const json::value& value) {
  if (!value.is_object()) header.damaged(name, "is not described by an object");
  const json::object& object = value.get_object();
  TensorEntry entry;
  entry.type = storage_type(header, name, object.if_contains("dtype"));
  const json::value* shape = object.if_contains("shape");
  if (shape == nullptr || !shape->is_array()) header.damaged(name, "has no shape");
  std::int64_t elements = 1;
  for (const json::value& extent : shape->get_array()) {
    const std::int64_t size = whole_number(extent);
    if (size < 1 || size > kMaxElements / elements) header.damaged(name, "has an impossible shape");
    elements *= size;
    entry.shape.push_back(size);
  }
  entry.size_bytes = elements * block_bytes(entry.type);
  const json::value* offsets = object.if_contains("data_offsets");
  if (offsets == nullptr || !offsets->is_array() || offsets->get_array().size() != 2)
    header.damaged(name, "has no data_offsets");
  const std::int64_t begin = whole_number(offsets->get_array()[0]);
  const std::int64_t end = whole_number(offsets->get_array()[1]);
  const auto available = static_cast<std::int64_t>(header.data.size());
  if (begin < 0 || end < begin || end > available)
    header.damaged(name, concat("lies at bytes ", begin, " to ", end, " of ", available));
  if (end - begin != entry.size_bytes)
    header.damaged(name,
                   concat("has ", end - begin, " bytes but its shape needs ", entry.size_bytes));
  entry.data = header.data.data() + begin;
  return entry;
}

/// The data must be covered exactly, each byte by one tensor.
void check_cover(const Header& header, const TensorMap& tensors) {
  std::vector<std::pair<const std::byte*, const TensorMap::value_type*>> order;
  for (const auto& item : tensors) order.emplace_back(item.second.data, &item);
  std::sort(order.begin(), order.end());
  const std::byte* at = header.data.data();
  for (const auto& [data, item] : order) {
    if (data < at) header.damaged(item->first, "overlaps another tensor");
    if (data > at) header.damaged(item->first, "does not start where the one before it ends");
    at = data + item->second.size_bytes;
  }
  const std::int64_t left = header.data.data() + header.data.size() - at;
  TANDEM_REQUIRE(left == 0, header.file.path(), " has ", left,
                 " bytes that belong to no tensor; the file is damaged, download it again");
}

/// Tensor name -> file name, from the index.
std::map<std::string, std::string> read_index(const fs::path& index) {
  const json::object object = read_json_object(index);
  const JsonFields fields(object, index.string());
  const json::object* map = fields.nested("weight_map");
  if (map == nullptr || map->empty()) fields.wrong("weight_map", "an object: tensor name to file");
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : *map) {
    if (!file.is_string()) fields.wrong("weight_map", "an object of file names");
    const std::string text(file.get_string());
    TANDEM_REQUIRE(!text.empty() && text.find('/') == std::string::npos && text != "..",
                   index.string(), ": \"", text, "\" is not a file name; download the index again");
    files[std::string(name.data(), name.size())] = text;
  }
  return files;
}

std::vector<fs::path> safetensors_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  return files;
}

/// The one weight file of a folder without index.
fs::path single_file(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / kSingleName, error)) return folder / kSingleName;
  const std::vector<fs::path> files = safetensors_files(folder);
  TANDEM_REQUIRE(!files.empty(), "there are no .safetensors files in ", folder.string(),
                 ": give --model a complete Hugging Face folder or a .gguf file, or use "
                 "--load-format dummy for random weights");
  TANDEM_REQUIRE(files.size() == 1, folder.string(), " holds ", files.size(),
                 " .safetensors files but no ", kIndexName, ": download the index too");
  return files.front();
}

}  // namespace

bool has_safetensors(const fs::path& folder) { return !safetensors_files(folder).empty(); }

TensorMap read_safetensors(const MappedFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  std::uint64_t header_bytes = 0;
  TANDEM_REQUIRE(bytes.size() > sizeof header_bytes, file.path(), " has only ", bytes.size(),
                 " bytes, too few for a safetensors file: download it again");
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  const std::uint64_t available = bytes.size() - sizeof header_bytes;
  TANDEM_REQUIRE(header_bytes <= available && header_bytes <= kMaxHeaderBytes, file.path(),
                 " says that its header has ", header_bytes, " bytes but the file has ", available,
                 "; it is truncated or not a safetensors file, download it again");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof header_bytes,
                              header_bytes);
  const json::object object = parse_json_object(text, "the header of " + file.path());
  const Header header{file, bytes.subspan(sizeof header_bytes + header_bytes)};
  TensorMap tensors;
  for (const auto& [key, value] : object) {
    const std::string name(key.data(), key.size());
    if (name != "__metadata__") tensors[name] = read_entry(header, name, value);
  }
  check_cover(header, tensors);
  return tensors;
}

TensorMap read_safetensors_folder(const fs::path& folder,
                                  std::vector<std::shared_ptr<const MappedFile>>& files) {
  std::error_code error;
  const fs::path index = folder / kIndexName;
  if (fs::exists(folder / kSingleName, error) || !fs::exists(index, error)) {
    files.push_back(std::make_shared<MappedFile>(single_file(folder)));
    return read_safetensors(*files.back());
  }
  const std::map<std::string, std::string> index_files = read_index(index);
  std::map<std::string, TensorMap> shards;
  TensorMap tensors;
  for (const auto& [name, shard] : index_files) {
    if (!shards.contains(shard)) {
      TANDEM_REQUIRE(fs::exists(folder / shard, error), index.string(), " names ", shard,
                     ", which is not in the folder: download it too");
      files.push_back(std::make_shared<MappedFile>(folder / shard));
      shards[shard] = read_safetensors(*files.back());
    }
    const auto at = shards[shard].find(name);
    TANDEM_REQUIRE(at != shards[shard].end(), index.string(), " says that ", shard,
                   " holds tensor ", name, ", which it does not: download both again");
    tensors.insert(*at);
  }
  return tensors;
}

}  // namespace tandem::runtime
