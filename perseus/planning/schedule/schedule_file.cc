// Reading and writing schedules in the form of torch.distributed.pipelining (schedule.h).
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/planning/schedule/schedule_check.h"

namespace perseus::schedule {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kExpectedCell = "expected <stage><F|I|W|B|R><microbatch>, such as 2F0";

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Takes the text up to `separator` off the front of `rest`, and the separator too.
std::string_view TakeUntil(std::string_view& rest, char separator) {
  const std::size_t end = rest.find(separator);
  const std::string_view taken = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return taken;
}

// Takes a number off the front of `rest`. Nothing if there is none, or it is too large for any
// schedule.
std::optional<int> TakeNumber(std::string_view& rest) {
  int number = 0;
  if (rest.starts_with('-')) return std::nullopt;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc()) return std::nullopt;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return number;
}

bool IsCommunication(std::string_view letters) {
  return letters.starts_with("SEND_") || letters.starts_with("RECV_") || letters == "UNSHARD" ||
         letters == "RESHARD" || letters == "REDUCE_GRAD";
}

// A cell's instruction, and whether its letter was the ambiguous B.
struct ParsedAction {
  Instruction instruction;
  bool is_b = false;
};

std::optional<ParsedAction> ParseLetters(std::string_view letters) {
  using enum InstructionKind;
  if (letters == "F") return ParsedAction{{kForward}};
  if (letters == "B") return ParsedAction{{kBackward}, true};
  if (letters == "BW") return ParsedAction{{kBackward}};
  if (letters == "I") return ParsedAction{{kBackwardInput}};
  if (letters == "W") return ParsedAction{{kBackwardWeight}};
  if (letters == "R") return ParsedAction{{kRecompute}};
  return std::nullopt;
}

std::string_view Letter(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::kForward:
      return "F";
    case InstructionKind::kBackward:
      return "B";
    case InstructionKind::kBackwardInput:
      return "I";
    case InstructionKind::kBackwardWeight:
      return "W";
    case InstructionKind::kRecompute:
      return "R";
    default:
      return "";  // No computation: no schedule holds one.
  }
}

class ScheduleReader {
 public:
  ScheduleReader(std::string_view text, std::string_view name) : rest_(text), name_(name) {
    if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
    while (rest_.ends_with('\n') || rest_.ends_with('\r')) rest_.remove_suffix(1);
  }

  Result<Schedule> Read() {
    schedule_.name = name_;
    while (!rest_.empty()) {
      PERSEUS_RETURN_IF_ERROR(ReadRow(TakeUntil(rest_, '\n')));
    }
    if (schedule_.ranks.empty()) {
      return Fail("{}: no schedule (expected a row for each rank, such as 0F0,0B0)", name_);
    }
    PERSEUS_RETURN_IF_ERROR(PlaceStages());
    ResolveOldLetters();
    if (auto defect = FindDefect(schedule_)) {
      return Fail("{}:row {}: {}", name_, defect->rank + 1, defect->message);
    }
    return std::move(schedule_);
  }

 private:
  Result<void> ReadRow(std::string_view row) {
    schedule_.ranks.emplace_back();
    while (!row.empty()) {
      std::string_view cell = Trimmed(TakeUntil(row, ','));
      if (cell.size() >= 2 && cell.starts_with('"') && cell.ends_with('"')) {
        cell = Trimmed(cell.substr(1, cell.size() - 2));
      }
      if (cell.empty()) continue;  // A bubble.
      auto read = cell.starts_with('(') ? ReadOverlap(cell) : ReadInstruction(cell);
      if (!read) return read;
    }
    if (!schedule_.ranks.back().empty()) return {};
    return Fail("{}:row {}: pp_rank {} computes nothing (remove the row, or give the rank a stage)",
                name_, row_number(), rank());
  }

  Result<void> ReadOverlap(std::string_view cell) {
    std::string_view rest = cell.substr(1);
    std::string_view instructions = TakeUntil(rest, ')');
    if (Trimmed(rest) != "OVERLAP_F_B" || instructions.empty()) {
      return Fail(
          "{}:row {}: cell {} (expected instructions side by side, such as "
          "(0F7;7B3)OVERLAP_F_B)",
          name_, row_number(), Excerpt(cell));
    }
    while (!instructions.empty()) {
      if (auto read = ReadInstruction(Trimmed(TakeUntil(instructions, ';'))); !read) return read;
    }
    return {};
  }

  Result<void> ReadInstruction(std::string_view cell) {
    auto fail = [&] {
      return Fail("{}:row {}: cell {} is no instruction ({})", name_, row_number(), Excerpt(cell),
                  kExpectedCell);
    };
    std::string_view rest = cell;
    const std::optional<int> stage = TakeNumber(rest);
    if (!stage) return fail();
    const std::string_view letters = rest.substr(0, rest.find_first_of("0123456789"));
    if (IsCommunication(letters)) return {};
    rest.remove_prefix(letters.size());
    std::optional<ParsedAction> parsed = ParseLetters(letters);
    const std::optional<int> microbatch = TakeNumber(rest);
    if (!parsed || !microbatch || !rest.empty()) return fail();

    parsed->instruction.stage = *stage;
    parsed->instruction.microbatch = *microbatch;
    const auto [home, first] = pp_rank_of_stage_.emplace(*stage, rank());
    if (!first && home->second != rank()) {
      return Fail(
          "{}:row {}: {} is here, but stage {} was on pp_rank {} in row {} (a stage lives on "
          "one rank)",
          name_, row_number(), cell, *stage, home->second, home->second + 1);
    }
    microbatches_ = std::max(microbatches_, std::int64_t{*microbatch} + 1);
    if (parsed->is_b) {
      ambiguous_.push_back({rank(), schedule_.ranks.back().size()});
    } else if (parsed->instruction.kind == InstructionKind::kBackwardWeight) {
      weights_.push_back(Key(parsed->instruction));
    }
    schedule_.ranks.back().push_back(parsed->instruction);
    return {};
  }

  Result<void> PlaceStages() {
    // Before the table of stages is made: its size would be whatever number stands in the file.
    for (int stage = 0; const auto& [number, rank] : pp_rank_of_stage_) {
      if (number != stage) {
        return Fail(
            "{}:row {}: stage {} is here but stage {} is nowhere (number stages from 0 "
            "without gaps)",
            name_, rank + 1, number, stage);
      }
      ++stage;
    }
    if (microbatches_ > std::numeric_limits<int>::max()) {
      return Fail("{}: microbatch {} is too large (number microbatches from 0 without gaps)", name_,
                  microbatches_ - 1);
    }
    schedule_.microbatches = static_cast<int>(microbatches_);
    std::vector<int> chunks_of_rank(schedule_.ranks.size());
    for (const auto& [stage, rank] : pp_rank_of_stage_) {
      schedule_.pp_rank_of_stage.push_back(rank);
      schedule_.chunk_of_stage.push_back(chunks_of_rank[static_cast<std::size_t>(rank)]++);
    }
    return {};
  }

  // Older files write dgrad as B; a wgrad of the same microbatch gives it away.
  void ResolveOldLetters() {
    std::sort(weights_.begin(), weights_.end());
    for (const auto& [rank, position] : ambiguous_) {
      Instruction& instruction = schedule_.ranks[static_cast<std::size_t>(rank)][position];
      if (std::binary_search(weights_.begin(), weights_.end(), Key(instruction))) {
        instruction.kind = InstructionKind::kBackwardInput;
      }
    }
  }

  int rank() const { return static_cast<int>(schedule_.ranks.size()) - 1; }
  int row_number() const { return rank() + 1; }
  static std::pair<int, int> Key(const Instruction& instruction) {
    return {instruction.stage, instruction.microbatch};
  }

  struct Place {
    int rank;
    std::size_t position;
  };

  std::string_view rest_;
  std::string_view name_;
  Schedule schedule_;
  std::map<int, int> pp_rank_of_stage_;
  std::int64_t microbatches_ = 0;
  std::vector<Place> ambiguous_;
  std::vector<std::pair<int, int>> weights_;  // (stage, microbatch) of every W.
};

}  // namespace

Result<Schedule> ParseSchedule(std::string_view text, std::string_view name) {
  return ScheduleReader(text, name).Read();
}

std::string FormatSchedule(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Instruction>& rank : schedule.ranks) {
    std::string_view separator;
    for (const Instruction& instruction : rank) {
      fmt::format_to(std::back_inserter(text), "{}{}{}{}", separator, instruction.stage,
                     Letter(instruction.kind), instruction.microbatch);
      separator = ",";
    }
    text += '\n';
  }
  return text;
}

}  // namespace perseus::schedule
