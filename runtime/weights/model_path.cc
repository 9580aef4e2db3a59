// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/model_path.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// "org/name" of letters, digits, '.', '_' and '-'.
bool is_hub_name(std::string_view text) {
  const auto slash = text.find('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == text.size()) return false;
  if (text.find('/', slash + 1) != std::string_view::npos) return false;
  if (text[0] == '.' || text[slash + 1] == '.' || text[0] == '~') return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '-' || c == '/';
  });
}

/// .gguf files of a folder, of split ones only the first part.
std::vector<fs::path> gguf_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool later_part =
        name.find("-of-") != std::string::npos && name.find("-00001-of-") == std::string::npos;
    if (entry.path().extension() == ".gguf" && !later_part) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// The folder itself, or the one GGUF file in it.
fs::path in_folder(const fs::path& folder) {
  if (is_there(folder / "config.json")) return folder;
  const std::vector<fs::path> files = gguf_files(folder);
  TANDEM_REQUIRE(!files.empty(), "there is neither a config.json nor a .gguf file in ",
                 folder.string(), ": give --model a complete Hugging Face folder or a .gguf file");
  TANDEM_REQUIRE(files.size() == 1, folder.string(), " holds ", files.size(),
                 " .gguf files: choose one, for example --model ", files.front().string());
  return files.front();
}

/// The snapshot that refs/main names, or the only one; empty when there is none.
fs::path snapshot(const fs::path& repository) {
  std::ifstream in(repository / "refs" / "main");
  std::string commit;
  const bool plain = (in >> commit) && commit.find('/') == std::string::npos && commit[0] != '.';
  if (plain && is_there(repository / "snapshots" / commit))
    return repository / "snapshots" / commit;
  std::error_code error;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(repository / "snapshots", error))
    found.push_back(entry.path());
  return found.size() == 1 ? found.front() : fs::path();
}

}  // namespace

fs::path hub_cache_folder() {
  if (const std::string cache = environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty())
    return fs::path(cache) / "huggingface" / "hub";
  return fs::path(environment("HOME")) / ".cache" / "huggingface" / "hub";
}

bool is_gguf(const fs::path& path) {
  std::error_code error;
  return path.extension() == ".gguf" && !fs::is_directory(path, error);
}

fs::path resolve_model_path(const std::string& model) {
  std::error_code error;
  if (fs::is_directory(model, error)) return in_folder(model);
  if (is_there(model)) {
    TANDEM_REQUIRE(is_gguf(model), model,
                   " is a file but no .gguf file: give --model its folder");
    return model;
  }
  TANDEM_REQUIRE(is_hub_name(model), "there is no model ", model,
                 ": give --model a Hugging Face folder, a .gguf file or a hub name like "
                 "HuggingFaceTB/SmolLM2-135M-Instruct");
  const fs::path cache = hub_cache_folder();
  std::string folder = "models--" + model;
  folder.replace(folder.find('/'), 1, "--");
  const fs::path found = snapshot(cache / folder);
  TANDEM_REQUIRE(!found.empty() && (is_there(found / "config.json") || !gguf_files(found).empty()),
                 "model ", model, " is not in the local cache ", cache.string(),
                 "; download it with: hf download ", model,
                 " --include \"*.json\" \"*.safetensors\" \"*.jinja\"");
  return in_folder(found);
}

}  // namespace tandem::runtime
