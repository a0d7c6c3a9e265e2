#include "perseus/planning/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "perseus/base/wording.h"

namespace perseus::schedule {
namespace {

// The maximum length of a recognized pattern, in words.
constexpr std::size_t kLongestPattern = 8;

char LetterOf(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::kForward:
      return 'F';
    case InstructionKind::kBackwardInput:
      return 'I';
    case InstructionKind::kBackwardWeight:
      return 'W';
    case InstructionKind::kRecompute:
      return 'R';
    case InstructionKind::kOptimizerStep:
      return 'O';
    default:
      return 'B';
  }
}

// How often the first `length` words repeat without a gap.
std::size_t Repeats(std::span<const std::string> words, std::size_t length) {
  std::size_t count = 1;
  while ((count + 1) * length <= words.size() &&
         std::equal(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(length),
                    words.begin() + static_cast<std::ptrdiff_t>(count * length))) {
    ++count;
  }
  return count;
}

// Writes the words as "5 F, 7 (B F), 5 B". From left to right, takes the pattern that covers the
// most words.
std::string Compress(std::span<const std::string> words) {
  std::string text;
  while (!words.empty()) {
    std::size_t best_length = 1;
    std::size_t best_count = Repeats(words, 1);
    for (std::size_t length = 2; length <= std::min(kLongestPattern, words.size() / 2); ++length) {
      const std::size_t count = Repeats(words, length);
      if (count > 1 && count * length > best_count * best_length) {
        best_length = length;
        best_count = count;
      }
    }
    if (!text.empty()) text += ", ";
    const auto pattern = words.first(best_length);
    if (best_count == 1) {
      text += pattern.front();
    } else if (best_length == 1) {
      text += fmt::format("{} {}", best_count, pattern.front());
    } else {
      text += fmt::format("{} ({})", best_count, fmt::join(pattern, " "));
    }
    words = words.subspan(best_count * best_length);
  }
  return text;
}

// Whether each stage runs its microbatches in ascending order, for each kind.
bool IsAscending(const std::vector<Instruction>& order) {
  std::map<std::pair<int, InstructionKind>, int> last;
  return std::ranges::all_of(order, [&](const Instruction& one) {
    const auto [at, is_new] = last.try_emplace({one.stage, one.kind}, one.microbatch);
    return is_new || std::exchange(at->second, one.microbatch) < one.microbatch;
  });
}

}  // namespace

std::string DescribeOrder(const Schedule& schedule) {
  const bool has_chunks = schedule.stages() > static_cast<int>(schedule.pp_ranks.size());
  std::string text;
  for (std::size_t i = 0; i < schedule.pp_ranks.size(); ++i) {
    const std::vector<Instruction>& order = schedule.pp_ranks[i];
    const bool is_ascending = IsAscending(order);
    std::vector<std::string> words;
    for (const Instruction& one : order) {
      words.push_back(fmt::format("{}{}{}", has_chunks ? fmt::to_string(one.stage) : "",
                                  LetterOf(one.kind),
                                  is_ascending ? "" : fmt::to_string(one.microbatch)));
    }
    const auto first_backward = std::ranges::find_if(order, [](const Instruction& one) {
      return one.kind != InstructionKind::kForward && one.kind != InstructionKind::kRecompute;
    });
    const auto warmup = std::count_if(order.begin(), first_backward, [](const Instruction& one) {
      return one.kind == InstructionKind::kForward;
    });
    text += fmt::format("pp_rank {}: {} before its first backward; {}\n", i,
                        Counted(warmup, "forward"), Compress(words));
  }
  return text;
}

}  // namespace perseus::schedule
