#include "tests/oracle/mixed_program.h"

#include <Cbc_C_Interface.h>
#include <fmt/core.h>

#include <memory>

#include "perseus/base/index.h"

namespace perseus {

int MixedProgram::AddColumn(Column kind, double cost, double most) {
  is_integer_.push_back(kind == Column::kInteger);
  costs_.push_back(cost);
  most_.push_back(most);
  entries_.emplace_back();
  return columns() - 1;
}

int MixedProgram::AddRow(double least, double most) {
  row_least_.push_back(least);
  row_most_.push_back(most);
  return static_cast<int>(row_least_.size()) - 1;
}

void MixedProgram::AddEntry(int row, int column, double value) {
  entries_[At(column)].emplace_back(row, value);
}

MixedProgram::Answer MixedProgram::Solve(double most_seconds) const {
  const std::unique_ptr<Cbc_Model, void (*)(Cbc_Model*)> model(Cbc_newModel(), Cbc_deleteModel);
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
  Cbc_loadProblem(model.get(), columns(), static_cast<int>(row_least_.size()), first.data(),
                  rows.data(), values.data(), least.data(), most_.data(), costs_.data(),
                  row_least_.data(), row_most_.data());
  for (int column = 0; column < columns(); ++column) {
    if (is_integer_[At(column)]) Cbc_setInteger(model.get(), column);
  }
  Cbc_setLogLevel(model.get(), 0);
  const std::string seconds = fmt::format("{}", most_seconds);
  Cbc_setParameter(model.get(), "seconds", seconds.c_str());
  Cbc_setParameter(model.get(), "timeMode", "elapsed");
  Cbc_setParameter(model.get(), "ratioGap", "0");
  Cbc_setParameter(model.get(), "allowableGap", "1e-9");
  Cbc_solve(model.get());

  Answer answer;
  answer.proved = Cbc_isProvenOptimal(model.get()) != 0;
  answer.least_cost = Cbc_getBestPossibleObjValue(model.get());
  if (const double* solution = Cbc_bestSolution(model.get())) {
    answer.cost = Cbc_getObjValue(model.get());
    answer.values.assign(solution, solution + columns());
  }
  return answer;
}

}  // namespace perseus
