// Reads and writes schedules in the format of torch.distributed.pipelining (schedule.h).
#include <fmt/core.h>

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

// Removes the text up to `separator`, and the separator, from the front of `rest`. Returns the
// text.
std::string_view TakeUntil(std::string_view& rest, char separator) {
  const std::size_t end = rest.find(separator);
  const std::string_view taken = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return taken;
}

// Removes a number from the front of `rest` and returns it. Returns nullopt if `rest` does not
// start with a number, or if the number does not fit an int.
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

// The instruction of a cell, and whether its letter was B, which has two meanings.
struct ParsedInstruction {
  Instruction instruction;
  bool is_b = false;
};

std::optional<ParsedInstruction> ParseLetters(std::string_view letters) {
  using enum InstructionKind;
  if (letters == "F") return ParsedInstruction{{kForward}};
  if (letters == "B") return ParsedInstruction{{kBackward}, true};
  if (letters == "BW") return ParsedInstruction{{kBackward}};
  if (letters == "I") return ParsedInstruction{{kBackwardInput}};
  if (letters == "W") return ParsedInstruction{{kBackwardWeight}};
  if (letters == "R") return ParsedInstruction{{kRecompute}};
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
      return "";  // A schedule has no fixed instructions.
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
    if (schedule_.pp_ranks.empty()) {
      return Fail(InFile(name_),
                  "the file is empty (expected a row for each pp_rank, such as 0F0,0B0)");
    }
    PERSEUS_RETURN_IF_ERROR(PlaceStages());
    ResolveOldLetters();
    if (auto defect = FindDefect(schedule_)) {
      return Fail(InFile(name_), "row {}: {}", defect->pp_rank + 1, defect->message);
    }
    return std::move(schedule_);
  }

 private:
  Result<void> ReadRow(std::string_view row) {
    schedule_.pp_ranks.emplace_back();
    while (!row.empty()) {
      std::string_view cell = Trimmed(TakeUntil(row, ','));
      if (cell.size() >= 2 && cell.starts_with('"') && cell.ends_with('"')) {
        cell = Trimmed(cell.substr(1, cell.size() - 2));
      }
      if (cell.empty()) continue;  // A bubble.
      auto read = cell.starts_with('(') ? ReadGroup(cell) : ReadInstruction(cell);
      if (!read) return read;
    }
    if (!schedule_.pp_ranks.back().empty()) return {};
    return Fail(InFile(name_),
                "row {}: pp_rank {} has no instructions (remove the row, or add instructions)",
                row_number(), pp_rank());
  }

  // An overlap of instructions, or a batch of communications.
  Result<void> ReadGroup(std::string_view cell) {
    std::string_view rest = cell.substr(1);
    std::string_view actions = TakeUntil(rest, ')');
    const std::string_view what = Trimmed(rest);
    if ((what != "OVERLAP_F_B" && what != "BATCH_P2P") || actions.empty()) {
      return Fail(InFile(name_),
                  "row {}: cell {} is not an overlap of instructions or a batch of communications "
                  "(expected a cell such as (0F7;7B3)OVERLAP_F_B or (0SEND_F0;2RECV_F0)BATCH_P2P)",
                  row_number(), Excerpt(cell));
    }
    const std::size_t before = schedule_.pp_ranks.back().size();
    while (!actions.empty()) {
      if (auto read = ReadInstruction(Trimmed(TakeUntil(actions, ';'))); !read) return read;
    }
    if (what == "BATCH_P2P" && schedule_.pp_ranks.back().size() != before) {
      return Fail(
          InFile(name_),
          "row {}: cell {} has a computation in a batch of communications (give the computation "
          "a cell of its own)",
          row_number(), Excerpt(cell));
    }
    return {};
  }

  Result<void> ReadInstruction(std::string_view cell) {
    auto fail = [&] {
      return Fail(InFile(name_), "row {}: cell {} is not an instruction ({})", row_number(),
                  Excerpt(cell), kExpectedCell);
    };
    std::string_view rest = cell;
    const std::optional<int> stage = TakeNumber(rest);
    if (!stage) return fail();
    const std::string_view letters = rest.substr(0, rest.find_first_of("0123456789"));
    if (IsCommunication(letters)) return {};
    rest.remove_prefix(letters.size());
    std::optional<ParsedInstruction> parsed = ParseLetters(letters);
    const std::optional<int> microbatch = TakeNumber(rest);
    if (!parsed || !microbatch || !rest.empty()) return fail();

    parsed->instruction.stage = *stage;
    parsed->instruction.microbatch = *microbatch;
    const auto [home, first] = pp_rank_of_stage_.emplace(*stage, pp_rank());
    if (!first && home->second != pp_rank()) {
      return Fail(
          InFile(name_),
          "row {}: {} is here, but stage {} is on pp_rank {} in row {} (keep each stage on one "
          "pp_rank)",
          row_number(), cell, *stage, home->second, home->second + 1);
    }
    microbatches_ = std::max(microbatches_, std::int64_t{*microbatch} + 1);
    if (parsed->is_b) {
      ambiguous_.push_back({pp_rank(), schedule_.pp_ranks.back().size()});
    } else if (parsed->instruction.kind == InstructionKind::kBackwardWeight) {
      weights_.push_back(Key(parsed->instruction));
    }
    schedule_.pp_ranks.back().push_back(parsed->instruction);
    return {};
  }

  Result<void> PlaceStages() {
    // This check comes before the table of stages: a large number in the file would make a huge
    // table.
    for (int stage = 0; const auto& [number, pp_rank] : pp_rank_of_stage_) {
      if (number != stage) {
        return Fail(
            InFile(name_),
            "row {}: stage {} is here, but stage {} is in no row (number stages from 0 without "
            "gaps)",
            pp_rank + 1, number, stage);
      }
      ++stage;
    }
    if (microbatches_ > std::numeric_limits<int>::max()) {
      return Fail(InFile(name_),
                  "microbatch {} is too large (number microbatches from 0 without gaps)",
                  microbatches_ - 1);
    }
    schedule_.microbatches = static_cast<int>(microbatches_);
    std::vector<int> chunks_of_rank(schedule_.pp_ranks.size());
    for (const auto& [stage, pp_rank] : pp_rank_of_stage_) {
      schedule_.pp_rank_of_stage.push_back(pp_rank);
      schedule_.chunk_of_stage.push_back(chunks_of_rank[static_cast<std::size_t>(pp_rank)]++);
    }
    return {};
  }

  // Older files write B for a dgrad. If the file also has a wgrad for it, a B is a dgrad.
  void ResolveOldLetters() {
    std::sort(weights_.begin(), weights_.end());
    for (const auto& [pp_rank, position] : ambiguous_) {
      Instruction& instruction = schedule_.pp_ranks[static_cast<std::size_t>(pp_rank)][position];
      if (std::binary_search(weights_.begin(), weights_.end(), Key(instruction))) {
        instruction.kind = InstructionKind::kBackwardInput;
      }
    }
  }

  int pp_rank() const { return static_cast<int>(schedule_.pp_ranks.size()) - 1; }
  int row_number() const { return pp_rank() + 1; }
  static std::pair<int, int> Key(const Instruction& instruction) {
    return {instruction.stage, instruction.microbatch};
  }

  struct Place {
    int pp_rank;
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
  for (const std::vector<Instruction>& pp_rank : schedule.pp_ranks) {
    std::string_view separator;
    for (const Instruction& instruction : pp_rank) {
      text += fmt::format("{}{}{}{}", separator, instruction.stage, Letter(instruction.kind),
                          instruction.microbatch);
      separator = ",";
    }
    text += '\n';
  }
  return text;
}

}  // namespace perseus::schedule
