// Reads and writes schedules in the format of torch.distributed.pipelining (schedule.h).
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  if (letters == "O") return ParsedInstruction{{kOptimizerStep}};
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
    case InstructionKind::kOptimizerStep:
      return "O";
    default:
      return "";  // A schedule has no fixed instructions.
  }
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) lines.push_back(TakeUntil(text, '\n'));
  return lines;
}

// Whether the text is the table that PyTorch prints for a schedule: a row for each step, and a
// column for each pp_rank below its name.
//
//            Rank 0  Rank 1
//   Step 0:  0F0
//   Step 1:  0F1     1F0
bool IsPrintedTable(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text.substr(first).starts_with("Rank 0");
}

// Returns where the column of each pp_rank begins.
std::vector<std::size_t> ColumnsOf(std::string_view header) {
  std::vector<std::size_t> columns;
  for (std::size_t at = header.find("Rank "); at != std::string_view::npos;
       at = header.find("Rank ", at + 1)) {
    columns.push_back(at);
  }
  return columns;
}

// Returns the cells of a row, by pp_rank. A row with a cell for each pp_rank may have lost its
// spaces. Otherwise, a cell is below the name of its pp_rank.
std::optional<std::vector<std::string>> CellsOf(std::string_view row,
                                                const std::vector<std::size_t>& columns) {
  const std::size_t begin = row.find(':') + 1;
  std::vector<std::string> cells;
  std::vector<std::string> aligned(columns.size());
  bool is_aligned = true;
  for (std::size_t at = row.find_first_not_of(" \t\r", begin); at < row.size();) {
    const std::size_t end = std::min(row.size(), row.find_first_of(" \t\r", at));
    cells.emplace_back(row.substr(at, end - at));
    const auto column = std::ranges::find(columns, at);
    is_aligned = is_aligned && column != columns.end();
    if (is_aligned) aligned[static_cast<std::size_t>(column - columns.begin())] = cells.back();
    at = std::min(row.size(), row.find_first_not_of(" \t\r", end));
  }
  if (cells.size() == columns.size()) return cells;
  return is_aligned ? std::optional(aligned) : std::nullopt;
}

// Returns the printed table in the format of the file: a row for each pp_rank.
Result<std::string> RowsOfPrintedTable(std::string_view text, std::string_view name) {
  std::vector<std::size_t> columns;
  std::vector<std::string> rows;
  for (std::string_view line : Lines(text)) {
    line = line.substr(0, line.find("<--"));  // PyTorch marks the step that failed.
    if (columns.empty()) {
      columns = ColumnsOf(line);
      rows.resize(columns.size());
    } else if (Trimmed(line).starts_with("Step ")) {
      const auto cells = CellsOf(line, columns);
      if (!cells) {
        return Fail(
            InFile(name),
            "{}: the cells are not below the names of the pp_ranks (copy the table with all "
            "its spaces)",
            Excerpt(Trimmed(line.substr(0, line.find(':')))));
      }
      for (std::size_t i = 0; i < rows.size(); ++i) rows[i] += (*cells)[i] + ",";
    }
  }
  return fmt::format("{}", fmt::join(rows, "\n"));
}

// Returns the stages of the instructions in a cell.
std::vector<int> StagesOf(std::string_view cell) {
  std::vector<int> stages;
  if (cell.starts_with('(')) cell = cell.substr(1, cell.find(')') - 1);
  while (!cell.empty()) {
    std::string_view action = Trimmed(TakeUntil(cell, ';'));
    if (const auto stage = TakeNumber(action)) stages.push_back(*stage);
  }
  return stages;
}

// Whether each stage has a column of its own or shares one, so that columns are pp_ranks.
bool IsTransposed(std::string_view text) {
  std::map<int, std::size_t> column_of_stage;
  std::size_t columns = 0;
  for (std::string_view row : Lines(text)) {
    for (std::size_t column = 0; !row.empty(); ++column) {
      columns = std::max(columns, column + 1);
      for (const int stage : StagesOf(Trimmed(TakeUntil(row, ',')))) {
        if (column_of_stage.emplace(stage, column).first->second != column) return false;
      }
    }
  }
  return columns > 1;
}

class ScheduleReader {
 public:
  ScheduleReader(std::string_view text, std::string_view name)
      : text_(text), rest_(text), name_(name) {
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
      return FailOfTwoRanks(cell, *stage, home->second);
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

  Result<void> FailOfTwoRanks(std::string_view cell, int stage, int home) const {
    if (IsTransposed(text_)) {
      return Fail(InFile(name_),
                  "row {}: {} is here, but stage {} is in row {}: the columns are the pp_ranks "
                  "(transpose the file, so that it has a row for each pp_rank)",
                  row_number(), cell, stage, home + 1);
    }
    return Fail(
        InFile(name_),
        "row {}: {} is here, but stage {} is on pp_rank {} in row {} (keep each stage on one "
        "pp_rank. For a schedule with copies of a stage, such as DualPipe, write a `graph`)",
        row_number(), cell, stage, home, home + 1);
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

  std::string_view text_;
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
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (!IsPrintedTable(text)) return ScheduleReader(text, name).Read();
  PERSEUS_ASSIGN_OR_RETURN(const std::string rows, RowsOfPrintedTable(text, name));
  return ScheduleReader(rows, name).Read();
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
