// SPDX-License-Identifier: Apache-2.0
#include "launch/engine_options.h"

#include "kernels/device/error.h"
#include "launch/command_line.h"

namespace tandem::launch {
namespace po = boost::program_options;
namespace {

void require_positive(const std::string& flag, std::int64_t value) {
  TANDEM_REQUIRE(value > 0, flag, " must be at least 1, not ", value);
}

}  // namespace

void EngineOptions::add_to(po::options_description& options) {
  po::options_description model_options("Model and device");
  model_options.add_options()("model,m", po::value(&model),
                              "folder with config.json and safetensors, a .gguf file, or a hub "
                              "name that is in the local cache")(
      "device", po::value(&device)->default_value(device), "auto | cpu | cuda")(
      "dtype", po::value(&dtype)->default_value(dtype), "auto | bfloat16 | float16 | float32")(
      "load-format", po::value(&load_format)->default_value(load_format),
      "auto | safetensors | gguf | dummy (seeded random weights from config.json alone)")(
      "weight-format", po::value(&weight_format)->default_value(weight_format),
      "auto | dense: CPU ranks keep Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and IQ4_NL weights of a .gguf "
      "file "
      "as they are, or make them bfloat16")(
      "tensor-parallel-size,tp", po::value(&tensor_parallel_size)->default_value(0, "world size"),
      "ranks that share the model; must equal the number of ranks started")(
      "max-model-len", po::value(&max_model_len)->default_value(0, "the model's"),
      "tokens of one sequence, prompt and answer")(
      "max-num-seqs", po::value(&max_num_seqs)->default_value(max_num_seqs),
      "sequences of one step")(
      "max-num-batched-tokens",
      po::value(&max_num_batched_tokens)->default_value(max_num_batched_tokens),
      "token rows of one step")(
      "max-num-mixed-tokens", po::value(&mixed_step_tokens)->default_value(mixed_step_tokens),
      "token rows of a step that decodes and prefills: fewer keep the pace of answers while long "
      "prompts come in, 0 lets such a step be as large as any")(
      "kv-cache-memory", po::value(&kv_cache_memory),
      "KV cache per rank at most, for example 4GiB")(
      "gpu-memory-utilization",
      po::value(&gpu_memory_utilization)->default_value(gpu_memory_utilization, "0.9"),
      "share of a GPU's memory that Tandem may use")(
      "threads", po::value(&threads)->default_value(0, "share of the cores"),
      "CPU ranks: threads of each rank")("dummy-seed", po::value(&dummy_seed)->default_value(0),
                                         "seed of --load-format dummy")(
      "enforce-eager", po::bool_switch(&enforce_eager), "no CUDA graphs")(
      "allow-shared-gpu", po::bool_switch(&allow_shared_gpu), "several ranks may use one GPU")(
      "mem-sync-domains", po::value(&mem_sync_domains)->default_value(mem_sync_domains),
      "auto | separate | shared: memory synchronization domains of compute and communication")(
      "all-reduce", po::value(&all_reduce)->default_value(all_reduce),
      "auto | oneshot | twoshot | nccl")(
      "overlap", po::value(&overlap)->default_value(overlap),
      "auto | on | off: sums over ranks under the other half of a prefill's computation; auto "
      "measures from how many tokens on it pays")(
      "decode-matmul", po::value(&decode_matmul)->default_value(decode_matmul),
      "auto | streaming | cublaslt: who multiplies the rows of decode on a GPU: streaming takes up "
      "to 64, auto the fastest for each shape, timed once and kept")(
      "verbose,v", po::bool_switch(&verbose), "log what happens on every rank");
  options.add(model_options);
}

void EngineOptions::validate(int world_size, const std::string& command) const {
  TANDEM_REQUIRE(!model.empty(), "no model was named; use tandem ", command,
                 " --model FOLDER, --model FILE.gguf or --model org/name");
  require_one_of("--device", device, {"auto", "cpu", "cuda"});
  require_one_of("--dtype", dtype, {"auto", "bfloat16", "float16", "float32"});
  require_one_of("--load-format", load_format, {"auto", "safetensors", "gguf", "dummy"});
  require_one_of("--weight-format", weight_format, {"auto", "dense"});
  require_one_of("--mem-sync-domains", mem_sync_domains, {"auto", "separate", "shared"});
  require_one_of("--all-reduce", all_reduce, {"auto", "oneshot", "twoshot", "nccl"});
  require_one_of("--decode-matmul", decode_matmul, {"auto", "streaming", "cublaslt"});
  require_one_of("--overlap", overlap, {"auto", "on", "off"});
  TANDEM_REQUIRE(tensor_parallel_size >= 0, "--tensor-parallel-size must be at least 1, not ",
                 tensor_parallel_size);
  TANDEM_REQUIRE(tensor_parallel_size == 0 || tensor_parallel_size == world_size,
                 "--tensor-parallel-size ", tensor_parallel_size, " needs ", tensor_parallel_size,
                 " ranks, but ", world_size, world_size == 1 ? " was" : " were",
                 " started; run mpirun -n ", tensor_parallel_size, " tandem ", command, " ...");
  TANDEM_REQUIRE(max_model_len >= 0, "--max-model-len must be at least 1, not ", max_model_len);
  require_positive("--max-num-seqs", max_num_seqs);
  require_positive("--max-num-batched-tokens", max_num_batched_tokens);
  TANDEM_REQUIRE(
      max_num_batched_tokens >= max_num_seqs, "--max-num-batched-tokens ", max_num_batched_tokens,
      " is less than --max-num-seqs ", max_num_seqs,
      "; each running sequence needs one token of a step: raise the first or lower the second");
  TANDEM_REQUIRE(mixed_step_tokens >= 0, "--max-num-mixed-tokens must be at least 0, not ",
                 mixed_step_tokens);
  TANDEM_REQUIRE(gpu_memory_utilization > 0 && gpu_memory_utilization <= 1,
                 "--gpu-memory-utilization must lie in (0, 1], not ", gpu_memory_utilization);
  require_threads(threads);
  if (!kv_cache_memory.empty()) parse_bytes("--kv-cache-memory", kv_cache_memory);
}

}  // namespace tandem::launch
