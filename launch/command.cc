// SPDX-License-Identifier: Apache-2.0
#include "launch/command.h"

#include "kernels/device/error.h"
#include "launch/bench_command.h"
#include "launch/chat_command.h"
#include "launch/doctor_command.h"
#include "launch/generate_command.h"
#include "launch/inspect_command.h"
#include "launch/plan_command.h"
#include "launch/serve_command.h"
#include "launch/tokenize_command.h"
#include "launch/version.h"
#include "launch/waits_command.h"

namespace tandem::launch {

const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
      {"generate", "answer one or more prompts and stream the text", run_generate},
      {"chat", "talk with a model in the terminal", run_chat},
      {"serve", "an OpenAI-compatible HTTP server", run_serve},
      {"bench", "measure latency, throughput and scaling", run_bench},
      {"plan", "what a model needs and how fast it would be on a cluster", run_plan},
      {"waits", "show where each rank's time goes, step by step", run_waits},
      {"doctor", "look at every rank's host and let the ranks work together", run_doctor},
      {"inspect", "what a model is, and what it costs each rank at a tensor-parallel size",
       run_inspect},
      {"tokenize", "token ids of a text, and back", run_tokenize},
  };
  return list;
}

std::string help_text() {
  std::string text = version_text() +
                     "\nTensor-parallel LLM inference: mpirun or srun starts the ranks, each rank "
                     "owns one device and one shard of the model.\n\n"
                     "usage: tandem COMMAND [options]            one rank\n"
                     "       mpirun -n N tandem COMMAND [options]  N ranks\n\ncommands:\n";
  for (const Command& command : commands()) {
    std::string name = command.name;
    name.resize(12, ' ');
    text += "  " + name + command.summary + "\n";
  }
  text += "  launch      run a command on the hosts of a cluster file\n";
  text += "\n";
  text += job_options_help();
  return text + "\n`tandem COMMAND --help` lists the options of a command.\n";
}

std::string command_text(const Ranks& ranks, const std::string& command,
                         const std::vector<std::string>& arguments) {
  const int size = ranks.control.size();
  std::string text = size > 1 ? concat("mpirun -n ", size, " tandem ") : "tandem ";
  text += command;
  for (const std::string& word : arguments) text += " " + word;
  return text;
}

}  // namespace tandem::launch
