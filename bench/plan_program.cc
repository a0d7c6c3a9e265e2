#include "bench/plan_program.h"

#include <Cbc_C_Interface.h>
#include <fmt/format.h>

#include <limits>
#include <memory>

#include "perseus/planning/plan/choices.h"

namespace perseus {
namespace {

std::size_t At(int i) { return static_cast<std::size_t>(i); }

constexpr double kNanosecondsPerUnit = 1e6;  // Times in milliseconds.
double ToUnits(Nanoseconds time) { return static_cast<double>(time) / kNanosecondsPerUnit; }

// The columns are the options of each instruction, its start, and finally the length. The code adds
// one row at a time. CBC needs columns, so the entries are sorted at the end.
class Program {
 public:
  Program(const plan::Planner& planner, Nanoseconds deadline)
      : graph_(planner.graph(), planner.model().blocking_power_w) {
    const int instructions = graph_.instructions();
    for (int i = 0; i < instructions; ++i) {
      first_option_.push_back(columns());
      for (const plan::Candidate& candidate : graph_.candidates(i)) {
        AddColumn(candidate.effective_energy_j, 1);
      }
    }
    first_start_ = columns();
    for (int i = 0; i < instructions; ++i) AddColumn(0, ToUnits(deadline));
    const int length = columns();
    const double waiting_w = planner.model().blocking_power_w * planner.pp_ranks();
    AddColumn(waiting_w * kNanosecondsPerUnit / kNanosecondsPerSecond, ToUnits(deadline));

    for (int i = 0; i < instructions; ++i) {
      const int row = AddRow(1, 1);
      for (int c = 0; c < Candidates(i); ++c) AddEntry(row, first_option_[At(i)] + c, 1);
    }
    for (int i = 0; i < instructions; ++i) {
      for (const auto& after : graph_.successors(i)) {
        AddOrder(i, first_start_ + after.instruction, ToUnits(after.delay));
      }
      if (graph_.successors(i).empty()) AddOrder(i, length, 0);
    }
  }

  ProgramOptimum Solve(const ProgramLimits& limits) {
    const std::unique_ptr<void, void (*)(Cbc_Model*)> model(Cbc_newModel(), Cbc_deleteModel);
    Load(model.get());
    Cbc_setLogLevel(model.get(), limits.report == ProgramLimits::Report::kProgress ? 1 : 0);
    const std::string seconds = fmt::format("{}", limits.seconds);
    Cbc_setParameter(model.get(), "seconds", seconds.c_str());
    Cbc_setParameter(model.get(), "timeMode", "elapsed");
    Cbc_setParameter(model.get(), "ratioGap", "0");
    Cbc_setParameter(model.get(), "allowableGap", "1e-9");
    if (!limits.start.empty()) GiveStart(model.get(), limits.start);
    Cbc_solve(model.get());

    ProgramOptimum optimum;
    optimum.proved = Cbc_isProvenOptimal(model.get()) != 0;
    optimum.lower_bound_j = Cbc_getBestPossibleObjValue(model.get());
    if (const double* solution = Cbc_bestSolution(model.get())) {
      optimum.energy_j = Cbc_getObjValue(model.get());
      for (int i = 0; i < graph_.instructions(); ++i) {
        int chosen = 0;
        for (int c = 1; c < Candidates(i); ++c) {
          const double* z = solution + first_option_[At(i)];
          if (z[c] > z[chosen]) chosen = c;
        }
        optimum.options.push_back(graph_.candidates(i)[At(chosen)].option);
      }
    }
    return optimum;
  }

 private:
  int columns() const { return static_cast<int>(costs_.size()); }
  int Candidates(int instruction) const {
    return static_cast<int>(graph_.candidates(instruction).size());
  }

  void AddColumn(double cost, double most) {
    costs_.push_back(cost);
    most_.push_back(most);
    entries_.emplace_back();
  }
  int AddRow(double least, double most) {
    row_least_.push_back(least);
    row_most_.push_back(most);
    return static_cast<int>(row_least_.size()) - 1;
  }
  void AddEntry(int row, int column, double value) {
    entries_[At(column)].emplace_back(row, value);
  }
  // The event is at least `delay` after the end of the instruction.
  void AddOrder(int instruction, int event, double delay) {
    const int row = AddRow(delay, std::numeric_limits<double>::infinity());
    AddEntry(row, event, 1);
    AddEntry(row, first_start_ + instruction, -1);
    for (int c = 0; c < Candidates(instruction); ++c) {
      AddEntry(row, first_option_[At(instruction)] + c,
               -ToUnits(graph_.candidates(instruction)[At(c)].time));
    }
  }

  void Load(Cbc_Model* model) const {
    std::vector<CoinBigIndex> first = {0};
    std::vector<int> rows;
    std::vector<double> values;
    for (const auto& column : entries_) {
      for (const auto& [row, value] : column) {
        rows.push_back(row);
        values.push_back(value);
      }
      first.push_back(static_cast<CoinBigIndex>(rows.size()));
    }
    const std::vector<double> least(costs_.size(), 0);
    Cbc_loadProblem(model, columns(), static_cast<int>(row_least_.size()), first.data(),
                    rows.data(), values.data(), least.data(), most_.data(), costs_.data(),
                    row_least_.data(), row_most_.data());
    for (int column = 0; column < first_start_; ++column) Cbc_setInteger(model, column);
  }

  void GiveStart(Cbc_Model* model, const std::vector<int>& options) const {
    plan::Choices choices;
    std::vector<int> columns;
    std::vector<double> values;
    for (int i = 0; i < graph_.instructions(); ++i) {
      for (int c = 0; c < Candidates(i); ++c) {
        const bool chosen = graph_.candidates(i)[At(c)].option == options[At(i)];
        columns.push_back(first_option_[At(i)] + c);
        values.push_back(chosen ? 1 : 0);
        if (chosen) choices.push_back(c);
      }
    }
    if (choices.size() != options.size()) return;  // A dominated option has no column.
    const std::vector<Nanoseconds> starts = plan::EarliestStarts(graph_, choices);
    double length = 0;
    for (int i = 0; i < graph_.instructions(); ++i) {
      columns.push_back(first_start_ + i);
      values.push_back(ToUnits(starts[At(i)]));
      const Nanoseconds time = graph_.candidates(i)[At(choices[At(i)])].time;
      length = std::max(length, ToUnits(starts[At(i)] + time));
    }
    columns.push_back(this->columns() - 1);
    values.push_back(length);
    Cbc_setMIPStartI(model, static_cast<int>(columns.size()), columns.data(), values.data());
  }

  plan::ChoiceGraph graph_;
  std::vector<int> first_option_;  // [instruction]
  int first_start_ = 0;
  std::vector<double> costs_;                                 // [column]
  std::vector<double> most_;                                  // [column]
  std::vector<std::vector<std::pair<int, double>>> entries_;  // [column]
  std::vector<double> row_least_;
  std::vector<double> row_most_;
};

}  // namespace

ProgramOptimum SolvePlanProgram(const plan::Planner& planner, Nanoseconds deadline,
                                const ProgramLimits& limits) {
  return Program(planner, deadline).Solve(limits);
}

}  // namespace perseus
