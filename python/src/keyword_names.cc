#include "python/src/keyword_names.h"

#include <array>
#include <cctype>

namespace perseus {
namespace {

struct FlagName {
  std::string_view flag;  // As in messages.
  std::string_view keyword;
};

// A flag with a value comes before the flag alone.
constexpr std::array kFlagNames{FlagName{"--activation-memory MIB", "activation_mib"},
                                FlagName{"--activation-memory", "activation_mib"},
                                FlagName{"--all-reduce", "all_reduce_s"},
                                FlagName{"--blocking-power", "blocking_power_w"},
                                FlagName{"--chunks", "chunks"},
                                FlagName{"--facts", "facts"},
                                FlagName{"--fold", "fold"},
                                FlagName{"--gpus-per-stage", "gpus_per_stage"},
                                FlagName{"--graph", "graph"},
                                FlagName{"--job", "job"},
                                FlagName{"--kept-memory", "kept_mib"},
                                FlagName{"--load", "load_s"},
                                FlagName{"--max-in-flight", "max_in_flight"},
                                FlagName{"--memory GIB", "memory_gib"},
                                FlagName{"--memory", "memory_gib"},
                                FlagName{"--microbatches", "microbatches"},
                                FlagName{"--model-memory GIB", "model_gib"},
                                FlagName{"--model-memory", "model_gib"},
                                FlagName{"--no-frontier", "frontier=False"},
                                FlagName{"--optimizer", "optimizer_s"},
                                FlagName{"--p2p", "p2p_s"},
                                FlagName{"--pp-ranks", "pp_ranks"},
                                FlagName{"--schedule auto", "schedule=\"auto\""},
                                FlagName{"--schedule", "schedule"},
                                FlagName{"--schedule-file", "schedule_file"}};

bool IsPartOfName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

// The flag at the begin of `text`, or nullptr.
const FlagName* FlagAt(std::string_view text) {
  for (const FlagName& name : kFlagNames) {
    const bool ends = text.size() <= name.flag.size() || !IsPartOfName(text[name.flag.size()]);
    if (text.starts_with(name.flag) && ends) return &name;
  }
  return nullptr;
}

}  // namespace

std::string WithKeywordNames(std::string_view message) {
  std::string text;
  // A path may contain the name of a flag, so a flag begins a word.
  bool begins_word = true;
  while (!message.empty()) {
    const FlagName* name = begins_word ? FlagAt(message) : nullptr;
    if (name == nullptr) {
      begins_word = message.front() == ' ' || message.front() == '(';
      text += message.front();
      message.remove_prefix(1);
      continue;
    }
    text += name->keyword;
    message.remove_prefix(name->flag.size());
    const bool has_number = message.size() > 1 && message.front() == ' ' &&
                            std::isdigit(static_cast<unsigned char>(message[1])) != 0;
    if (has_number) {
      text += '=';
      message.remove_prefix(1);
    }
    begins_word = false;
  }
  return text;
}

}  // namespace perseus
