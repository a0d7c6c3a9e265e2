#include "perseus/planning/plan_file/frequency_lists.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "perseus/base/excerpt.h"
#include "perseus/base/number.h"
#include "perseus/planning/plan_file/option_lookup.h"

namespace perseus::plan_file {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

struct Token {
  enum class Kind { kOpen, kClose, kComma, kText, kNumber, kEnd, kUnknown };
  Kind kind = Kind::kEnd;
  std::string_view text;  // For kText, without the quotes.
  int line = 1;
};

// Splits into brackets, commas, strings and numbers; skips white space and comments.
class Tokenizer {
 public:
  explicit Tokenizer(std::string_view text) : rest_(text) {
    if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
  }

  Token Next() {
    SkipBlanks();
    if (rest_.empty()) return {Token::Kind::kEnd, "the end of the file", line_};
    const char first = rest_.front();
    if (first == '[' || first == '(') return Take(Token::Kind::kOpen, 1);
    if (first == ']' || first == ')') return Take(Token::Kind::kClose, 1);
    if (first == ',') return Take(Token::Kind::kComma, 1);
    if (first == '\'' || first == '"') return TakeText(first);
    const std::size_t end = rest_.find_first_of(" \t\r\n,()[]'\"#");
    const std::size_t length = std::min(end, rest_.size());
    const bool is_number = (first >= '0' && first <= '9') || first == '-' || first == '+';
    return Take(is_number ? Token::Kind::kNumber : Token::Kind::kUnknown, length);
  }

 private:
  void SkipBlanks() {
    while (!rest_.empty()) {
      const char first = rest_.front();
      if (first == '#') {
        rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
      } else if (first == '\n' || first == ' ' || first == '\t' || first == '\r') {
        if (first == '\n') ++line_;
        rest_.remove_prefix(1);
      } else {
        return;
      }
    }
  }

  Token Take(Token::Kind kind, std::size_t length) {
    const Token token{kind, rest_.substr(0, length), line_};
    rest_.remove_prefix(length);
    return token;
  }

  // A name in quotes has no escapes and ends on the same line.
  Token TakeText(char quote) {
    const std::size_t end = rest_.find_first_of(quote == '"' ? "\"\\\n" : "'\\\n", 1);
    if (end == std::string_view::npos || rest_[end] != quote) {
      return Take(Token::Kind::kUnknown, std::min(end, rest_.size()));
    }
    Token token = Take(Token::Kind::kText, end + 1);
    token.text = token.text.substr(1, end - 1);
    return token;
  }

  std::string_view rest_;
  int line_ = 1;
};

class ListsReader {
 public:
  ListsReader(std::string_view text, std::string_view name) : tokenizer_(text), name_(name) {
    Advance();
  }

  Result<FrequencyLists> Read() {
    FrequencyLists lists;
    if (auto opened = Expect(Token::Kind::kOpen, "[ before the first pp_rank's list"); !opened) {
      return Fail(opened);
    }
    while (token_.kind != Token::Kind::kClose) {
      if (auto rank = ReadRank(); rank) {
        lists.pp_ranks.push_back(*std::move(rank));
      } else {
        return Fail(rank);
      }
      if (auto separated = SeparateOrClose("] after the last pp_rank's list"); !separated) {
        return Fail(separated);
      }
    }
    PERSEUS_RETURN_IF_ERROR(Close("["));
    if (token_.kind != Token::Kind::kEnd) return FailAtToken("only comments after the list");
    if (lists.pp_ranks.empty()) {
      return Fail("{}: the list is empty (expected a list for each pp_rank)", name_);
    }
    return lists;
  }

 private:
  Result<std::vector<ListedFrequency>> ReadRank() {
    const std::string_view bracket = token_.text;
    const int line = token_.line;
    if (auto opened = Expect(Token::Kind::kOpen, "a pp_rank's list, such as [1410, 1395]");
        !opened) {
      return Fail(opened);
    }
    std::vector<ListedFrequency> rank;
    while (token_.kind != Token::Kind::kClose) {
      if (auto entry = ReadEntry(); entry) {
        rank.push_back(*entry);
      } else {
        return Fail(entry);
      }
      if (auto separated = SeparateOrClose("] after the pp_rank's last entry"); !separated) {
        return Fail(separated);
      }
    }
    PERSEUS_RETURN_IF_ERROR(Close(bracket));
    if (rank.empty()) {
      return Fail("{}:{}: the pp_rank's list is empty (expected its frequencies)", name_, line);
    }
    return rank;
  }

  Result<ListedFrequency> ReadEntry() {
    ListedFrequency entry{.kind = std::nullopt, .frequency_mhz = 0, .line = token_.line};
    const bool is_pair = token_.kind == Token::Kind::kOpen;
    const std::string_view bracket = token_.text;
    if (is_pair) {
      Advance();
      if (token_.kind != Token::Kind::kText)
        return FailAtToken("an instruction, such as 'forward'");
      entry.kind = ParseInstructionKind(token_.text);
      if (!entry.kind || !IsPlanned(*entry.kind)) {
        return FailAtToken("forward, backward or another instruction that has a clock");
      }
      Advance();
      if (auto comma = Expect(Token::Kind::kComma, "a comma and a frequency"); !comma) {
        return Fail(comma);
      }
    }
    PERSEUS_ASSIGN_OR_RETURN(const auto frequency_mhz, ReadFrequency());
    entry.frequency_mhz = frequency_mhz;
    if (is_pair) {
      PERSEUS_RETURN_IF_ERROR(Close(bracket));
    }
    return entry;
  }

  Result<double> ReadFrequency() {
    const auto mhz = ParseNumber<double>(token_.text);
    if (token_.kind != Token::Kind::kNumber || !mhz ||
        !(*mhz > 0 && *mhz <= kHighestFrequencyMhz)) {
      return FailAtToken("a frequency in MHz, such as 1410");
    }
    Advance();
    return *mhz;
  }

  // An entry is followed by a comma or by the end of the list. The list may also end after a comma.
  Result<void> SeparateOrClose(std::string_view expected) {
    if (token_.kind == Token::Kind::kComma) {
      Advance();
    } else if (token_.kind != Token::Kind::kClose) {
      return FailAtToken(fmt::format("a comma or {}", expected));
    }
    return {};
  }

  Result<void> Close(std::string_view opened) {
    const std::string_view closing = opened == "[" ? "]" : ")";
    // The check of the kind is necessary: a string has no quotes here, so it may look like a
    // bracket.
    if (token_.kind != Token::Kind::kClose || token_.text != closing) return FailAtToken(closing);
    Advance();
    return {};
  }

  Result<void> Expect(Token::Kind kind, std::string_view expected) {
    if (token_.kind != kind) return FailAtToken(expected);
    Advance();
    return {};
  }

  tl::unexpected<Error> FailAtToken(std::string_view expected) const {
    return Fail("{}:{}: {} (expected {})", name_, token_.line,
                token_.kind == Token::Kind::kEnd ? "the file ends too early" : Excerpt(token_.text),
                expected);
  }

  void Advance() { token_ = tokenizer_.Next(); }

  Tokenizer tokenizer_;
  std::string_view name_;
  Token token_;
};

}  // namespace

Result<FrequencyLists> ParseFrequencyLists(std::string_view text, std::string_view name) {
  return ListsReader(text, name).Read();
}

Result<void> CheckListable(const schedule::InstructionGraph& graph) {
  if (graph.other_knob_names.empty()) return {};
  return Fail("frequency lists cannot have the knob {} of the profile (use the plans in JSON)",
              Excerpt(graph.other_knob_names.front()));
}

Result<std::string> FormatFrequencyLists(const schedule::InstructionGraph& graph,
                                         const ListedPlan& plan) {
  PERSEUS_RETURN_IF_ERROR(CheckListable(graph));
  std::string text = "[\n";
  for (const std::vector<int>& order : PlannedOrders(graph)) {
    std::string_view separator;
    text += '[';
    for (int instruction : order) {
      const schedule::OptionSet& set = graph.options_of(instruction);
      const auto option =
          static_cast<std::size_t>(plan.options[static_cast<std::size_t>(instruction)]);
      const double mhz = set.options[option].frequency_mhz;
      if (mhz != std::floor(mhz) || mhz < 1) {
        return Fail(
            "frequency lists can only have whole MHz, but {} runs at {} MHz (use the plans in "
            "JSON)",
            set.name, mhz);
      }
      fmt::format_to(std::back_inserter(text), "{}('{}', {})", separator, Name(set.kind), mhz);
      separator = ", ";
    }
    text += "],\n";
  }
  fmt::format_to(std::back_inserter(text), "]\n# {}\n# iteration time: {} s\n# energy: {} J\n",
                 plan.target, ToSeconds(plan.time), plan.energy_j);
  return text;
}

Result<std::vector<int>> FindOptions(const FrequencyLists& lists,
                                     const schedule::InstructionGraph& graph,
                                     std::string_view name) {
  const std::vector<std::vector<int>> orders = PlannedOrders(graph);
  if (lists.pp_ranks.size() != orders.size()) {
    return Fail(
        "{}: has lists for {} pp_ranks, but the job has {} (use the flags of the job that the file "
        "was made for)",
        name, lists.pp_ranks.size(), orders.size());
  }
  // Fixed instructions keep their options of the baseline.
  std::vector<int> options = schedule::BaselineOptions(graph);
  for (std::size_t rank = 0; rank < orders.size(); ++rank) {
    const std::vector<ListedFrequency>& listed = lists.pp_ranks[rank];
    if (listed.size() != orders[rank].size()) {
      const int line = listed.empty() ? 1 : listed.front().line;
      return Fail(
          "{}:{}: {} has {} frequencies, but the job has {} instructions there (use the flags of "
          "the job that the file was made for)",
          name, line, graph.pp_rank_names[rank], listed.size(), orders[rank].size());
    }
    for (std::size_t i = 0; i < listed.size(); ++i) {
      const schedule::OptionSet& set = graph.options_of(orders[rank][i]);
      const std::string where = fmt::format("{}:{}", name, listed[i].line);
      if (listed[i].kind && *listed[i].kind != set.kind) {
        return Fail(
            "{}: entry {} of {} is a {}, but the job has {} there (use the flags of the job that "
            "the file was made for)",
            where, i, graph.pp_rank_names[rank], Name(*listed[i].kind),
            schedule::Describe(graph, orders[rank][i]));
      }
      const auto option = FindOption(set, {listed[i].frequency_mhz, {}}, where);
      if (!option) return Fail(option);
      options[static_cast<std::size_t>(orders[rank][i])] = *option;
    }
  }
  return options;
}

}  // namespace perseus::plan_file
