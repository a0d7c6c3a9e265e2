#include "tests/oracle/linear_program.h"

#include <ClpSimplex.hpp>
#include <CoinPackedMatrix.hpp>
#include <algorithm>
#include <numeric>
#include <vector>

namespace perseus {
namespace {

double ProvedBound(const ClpSimplex& program) {
  const auto columns = static_cast<std::size_t>(program.numberColumns());
  std::vector<double> reduced_cost(program.objective(), program.objective() + columns);
  const CoinPackedMatrix& matrix = *program.matrix();  // By column.
  std::vector<double> duals;
  double bound = 0;
  for (int row = 0; row < program.numberRows(); ++row) {
    duals.push_back(std::max(0.0, program.dualRowSolution()[row]));
    bound += duals.back() * program.rowLower()[row];
  }
  for (std::size_t column = 0; column < columns; ++column) {
    const CoinBigIndex end = matrix.getVectorStarts()[column] + matrix.getVectorLengths()[column];
    for (CoinBigIndex i = matrix.getVectorStarts()[column]; i < end; ++i) {
      reduced_cost[column] -=
          duals[static_cast<std::size_t>(matrix.getIndices()[i])] * matrix.getElements()[i];
    }
    bound += std::min(reduced_cost[column] * program.columnLower()[column],
                      reduced_cost[column] * program.columnUpper()[column]);
  }
  return bound;
}

}  // namespace

// There are two kinds of variables. The first is the event time of each node. The second is, for
// each segment of each arc, the time that the segment takes off the arc's slowest duration. This
// time is between 0 and the length of the segment, and its cost is the segment's slope. The rows
// say that an arc lasts at least its slowest time minus all time taken off. The source happens at
// 0, and the sink by the deadline. Slopes rise toward the fast end. So an optimum uses the slow
// segments first, and no constraint has to enforce this order.
//
//     minimize   sum over segments  slope * taken_off
//     subject to time[head] - time[tail] + sum(taken_off) >= slowest     for each arc
//                0 <= taken_off <= length of the segment
//                time[source] = 0,  0 <= time[node] <= deadline
//
// For any flows y >= 0 on the arcs (the dual values of the rows), no schedule costs less than
//     sum over arcs  y * slowest  +  sum over variables  min over its range of (reduced cost) * x.
LinearOptimum SolveLinearProgram(const frontier::Network& network, Nanoseconds deadline,
                                 const ProgramUnits& units) {
  const auto time = [&](Nanoseconds t) {
    return static_cast<double>(t) / static_cast<double>(units.time);
  };
  const auto slope = [&](Microwatts s) {
    return static_cast<double>(s.count()) / static_cast<double>(units.slope.count());
  };
  struct {
    std::vector<double> lower, upper, cost;
  } columns;
  struct {
    std::vector<int> row, column;
    std::vector<double> value;
  } entries;
  std::vector<double> least_lengths;
  const auto add_column = [&](double upper, double cost) {
    columns.lower.push_back(0);
    columns.upper.push_back(upper);
    columns.cost.push_back(cost);
    return static_cast<int>(columns.cost.size()) - 1;
  };
  const auto add_entry = [&](int column, double value) {
    entries.row.push_back(static_cast<int>(least_lengths.size()));
    entries.column.push_back(column);
    entries.value.push_back(value);
  };
  for (std::int32_t node = 0; node < network.nodes; ++node) {
    add_column(node == network.source ? 0 : time(deadline), 0);
  }
  for (const frontier::Arc& arc : network.arcs) {
    const profile::Curve& curve = network.curve_of(arc);
    add_entry(arc.head, 1);
    add_entry(arc.tail, -1);
    for (std::size_t j = 0; j < curve.slopes.size(); ++j) {
      add_entry(add_column(time(curve.times[j + 1] - curve.times[j]), slope(curve.slopes[j])), 1);
    }
    least_lengths.push_back(time(curve.slowest()));
  }
  const CoinPackedMatrix matrix(true, entries.row.data(), entries.column.data(),
                                entries.value.data(),
                                static_cast<CoinBigIndex>(entries.value.size()));
  ClpSimplex program;
  program.setLogLevel(0);
  program.loadProblem(matrix, columns.lower.data(), columns.upper.data(), columns.cost.data(),
                      least_lengths.data(), nullptr);
  program.dual();
  LinearOptimum optimum;
  optimum.solved = program.isProvenOptimal();
  const double unit_j = ToSeconds(units.time) * ToWatts(units.slope);
  optimum.objective_j = program.objectiveValue() * unit_j;
  optimum.proved_j = ProvedBound(program) * unit_j;
  optimum.slack_j = program.dualTolerance() * unit_j *
                    std::accumulate(columns.upper.begin(), columns.upper.end(), 0.0);
  return optimum;
}

}  // namespace perseus
