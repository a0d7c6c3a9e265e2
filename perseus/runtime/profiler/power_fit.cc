#include "perseus/runtime/profiler/power_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "perseus/runtime/profiler/symmetric_eigen.h"

namespace perseus::profiler {
namespace {

// Of the normal equations with a diagonal of ones: below it a combination of parameters counts as
// unseen. Rounding leaves 1e-15 or so; a combination that varies by a thousandth of what its
// parameters do, still worth an estimate, has 1e-6.
constexpr double kNoInformation = 1e-9;
// A parameter whose part in an unseen combination is below this is not touched by it.
constexpr double kNoPart = 1e-6;
// Standard deviation of the common shift of a stretch's edges, in those of an edge: so wide that
// data decide.
constexpr double kFreePhase = 10;
// No edge is known better: a call and a reading take that long.
constexpr double kLeastEdgeErrorS = 1e-6;

// Lower triangle, in place; upper is left alone. Positive definite by construction.
void Factor(SquareMatrix& c) {
  for (std::size_t i = 0; i < c.size; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = c.At(i, j);
      for (std::size_t k = 0; k < j; ++k) sum -= c.At(i, k) * c.At(j, k);
      c.At(i, j) = i == j ? std::sqrt(std::max(sum, 1e-12 * c.At(i, i))) : sum / c.At(j, j);
    }
  }
}

void SolveLower(const SquareMatrix& factor, std::vector<double>& b) {
  for (std::size_t i = 0; i < b.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) b[i] -= factor.At(i, j) * b[j];
    b[i] /= factor.At(i, i);
  }
}

double Dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Mean power of a window and its neighbours.
double PowerAround(std::span<const PowerWindow> stretch, std::size_t first, std::size_t last) {
  double energy_j = 0;
  double seconds = 0;
  for (std::size_t k = first; k <= std::min(last, stretch.size() - 1); ++k) {
    energy_j += stretch[k].energy_j;
    seconds += stretch[k].seconds;
  }
  return seconds > 0 ? energy_j / seconds : 0;
}

// What is drawn at an edge.
double PowerAtEdge(std::span<const PowerWindow> stretch, std::size_t edge) {
  const double known_w =
      edge < stretch.size() ? stretch[edge].begin_power_w : stretch[edge - 1].end_power_w;
  return known_w > 0 ? known_w : PowerAround(stretch, edge == 0 ? 0 : edge - 1, edge);
}

// All edges off by the same time.
void AddPhase(std::span<const PowerWindow> stretch, SquareMatrix& covariance) {
  std::vector<double> moved_j;
  for (std::size_t k = 0; k < stretch.size(); ++k) {
    moved_j.push_back(kFreePhase * stretch[k].begin_error_s *
                      (PowerAtEdge(stretch, k) - PowerAtEdge(stretch, k + 1)));
  }
  for (std::size_t k = 0; k < stretch.size(); ++k) {
    for (std::size_t l = 0; l < stretch.size(); ++l) covariance.At(k, l) += moved_j[k] * moved_j[l];
  }
}

// S: what edges add.
void AddEdges(std::span<const PowerWindow> stretch, SquareMatrix& covariance) {
  for (std::size_t edge = 0; edge <= stretch.size(); ++edge) {
    const double error_s =
        edge < stretch.size() ? stretch[edge].begin_error_s : stretch[edge - 1].end_error_s;
    const double error_j = std::max(error_s, kLeastEdgeErrorS) * PowerAtEdge(stretch, edge);
    if (edge > 0) covariance.At(edge - 1, edge - 1) += error_j * error_j;
    if (edge == stretch.size()) continue;
    covariance.At(edge, edge) += error_j * error_j;
    if (edge > 0) covariance.At(edge, edge - 1) -= error_j * error_j;
  }
}

// G: what runs share, for a relative deviation of 1.
SquareMatrix SharedRuns(std::span<const PowerWindow> stretch) {
  SquareMatrix shared;
  shared.GrowTo(stretch.size());
  std::map<int, std::vector<std::pair<std::size_t, double>>> energies_j;  // By run.
  for (std::size_t k = 0; k < stretch.size(); ++k) {
    const double power_w = PowerAround(stretch, k, k);
    for (const PowerWindow::Part& part : stretch[k].parts) {
      if (part.run >= 0) energies_j[part.run].emplace_back(k, power_w * part.seconds);
    }
  }
  for (const auto& [run, parts] : energies_j) {
    for (const auto& [k, a] : parts) {
      for (const auto& [l, b] : parts) shared.At(k, l) += a * b;
    }
  }
  return shared;
}

struct Fitted {
  std::vector<double> powers;
  SquareMatrix covariance;  // Up to the common factor.
  std::vector<bool> identified;
  double rank = 0;
  double residual_squares = 0;
  double log_determinant = 0;  // Of the identified part of the normal equations.
};

Fitted Solve(const PowerFit::Sums& sums) {
  const std::size_t n = sums.right.size();
  Fitted fitted;
  fitted.powers.resize(n);
  fitted.covariance.GrowTo(n);
  fitted.identified.assign(n, true);
  std::vector<double> scales(n);
  SquareMatrix scaled = sums.normal;
  for (std::size_t i = 0; i < n; ++i) {
    scales[i] = sums.normal.At(i, i) > 0 ? 1 / std::sqrt(sums.normal.At(i, i)) : 0;
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) scaled.At(i, j) *= scales[i] * scales[j];
  }
  const SymmetricEigen eigen = DecomposeSymmetric(std::move(scaled));
  double explained = 0;
  for (std::size_t k = 0; k < n; ++k) {
    if (eigen.values[k] < kNoInformation) {
      for (std::size_t i = 0; i < n; ++i) {
        const double part = eigen.vectors.At(i, k);
        if (part * part > kNoPart) fitted.identified[i] = false;
      }
      continue;
    }
    ++fitted.rank;
    fitted.log_determinant += std::log(eigen.values[k]);
    double along = 0;
    for (std::size_t i = 0; i < n; ++i) along += eigen.vectors.At(i, k) * scales[i] * sums.right[i];
    explained += along * along / eigen.values[k];
    for (std::size_t i = 0; i < n; ++i) {
      const double v = eigen.vectors.At(i, k) * scales[i] / eigen.values[k];
      fitted.powers[i] += v * along;
      for (std::size_t j = 0; j < n; ++j) {
        fitted.covariance.At(i, j) += v * eigen.vectors.At(j, k) * scales[j];
      }
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (scales[i] > 0) fitted.log_determinant -= 2 * std::log(scales[i]);
  }
  fitted.residual_squares = std::max(0.0, sums.squares - explained);
  return fitted;
}

}  // namespace

void SquareMatrix::GrowTo(std::size_t wanted) {
  if (wanted <= size) return;
  std::vector<double> grown(wanted * wanted);
  for (std::size_t i = 0; i < size; ++i) {
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i * size), size,
                grown.begin() + static_cast<std::ptrdiff_t>(i * wanted));
  }
  values = std::move(grown);
  size = wanted;
}

void PowerFit::Add(std::span<const PowerWindow> stretch) {
  while (!stretch.empty()) {
    const std::size_t length = std::min(stretch.size(), kLongestStretch);
    AddShort(stretch.first(length));
    stretch = stretch.subspan(length);
  }
}

void PowerFit::AddShort(std::span<const PowerWindow> stretch) {
  std::map<std::size_t, std::vector<double>> columns;  // By parameter: seconds in each window.
  std::vector<double> energies_j;
  std::size_t parameters = this->parameters();
  for (std::size_t k = 0; k < stretch.size(); ++k) {
    energies_j.push_back(stretch[k].energy_j);
    for (const PowerWindow::Part& part : stretch[k].parts) {
      columns.try_emplace(part.parameter, stretch.size()).first->second[k] += part.seconds;
      parameters = std::max(parameters, part.parameter + 1);
    }
  }
  windows_ += static_cast<double>(stretch.size());
  const SquareMatrix shared = SharedRuns(stretch);
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    SquareMatrix covariance = shared;
    for (double& value : covariance.values) value *= kRunDeviations[i] * kRunDeviations[i];
    AddEdges(stretch, covariance);
    AddPhase(stretch, covariance);
    Factor(covariance);
    Sums& sums = sums_[i];
    sums.normal.GrowTo(parameters);
    sums.right.resize(parameters);
    std::vector<double> whitened = energies_j;
    SolveLower(covariance, whitened);
    std::vector<std::pair<std::size_t, std::vector<double>>> whitened_columns;
    for (const auto& [parameter, column] : columns) {
      whitened_columns.emplace_back(parameter, column);
      SolveLower(covariance, whitened_columns.back().second);
    }
    for (const auto& [a, column_a] : whitened_columns) {
      sums.right[a] += Dot(column_a, whitened);
      for (const auto& [b, column_b] : whitened_columns) {
        sums.normal.At(a, b) += Dot(column_a, column_b);
      }
    }
    sums.squares += Dot(whitened, whitened);
    for (std::size_t k = 0; k < stretch.size(); ++k) {
      sums.log_determinant += 2 * std::log(covariance.At(k, k));
    }
  }
}

void PowerFit::Add(const PowerFit& other) {
  windows_ += other.windows_;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const Sums& theirs = other.sums_[i];
    const std::size_t size = theirs.right.size();
    sums_[i].normal.GrowTo(size);
    sums_[i].right.resize(std::max(size, sums_[i].right.size()));
    for (std::size_t a = 0; a < size; ++a) {
      sums_[i].right[a] += theirs.right[a];
      for (std::size_t b = 0; b < size; ++b) sums_[i].normal.At(a, b) += theirs.normal.At(a, b);
    }
    sums_[i].squares += theirs.squares;
    sums_[i].log_determinant += theirs.log_determinant;
  }
}

PowerFit::Answer PowerFit::Solve() const {
  Answer answer;
  answer.powers.resize(parameters());
  double greatest = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const Fitted fitted = profiler::Solve(sums_[i]);
    const double degrees = windows_ - fitted.rank;
    if (degrees < 1) return answer;  // As many unknowns as windows: nothing to tell errors by.
    const double factor = std::max(fitted.residual_squares / degrees, 1e-18);
    const double likelihood =
        -0.5 * (degrees * std::log(factor) + sums_[i].log_determinant + fitted.log_determinant);
    if (likelihood <= greatest) continue;
    greatest = likelihood;
    answer.chosen = i;
    answer.likelihood = likelihood;
    answer.degrees_of_freedom = degrees;
    answer.run_deviation = kRunDeviations[i] * std::sqrt(factor);
    for (std::size_t p = 0; p < answer.powers.size(); ++p) {
      answer.powers[p] = {fitted.powers[p],
                          std::sqrt(std::max(0.0, factor * fitted.covariance.At(p, p))),
                          fitted.identified[p] && sums_[i].normal.At(p, p) > 0};
    }
  }
  return answer;
}

PowerFit PowerFit::Restore(std::array<Sums, kRunDeviations.size()> sums, double windows) {
  PowerFit fit;
  fit.sums_ = std::move(sums);
  fit.windows_ = windows;
  return fit;
}

}  // namespace perseus::profiler
