// Eigenvalues and eigenvectors of a symmetric matrix, by Jacobi's rotations (1846): slow for large
// matrices, and accurate to the last digits also for the small eigenvalues of a scaled positive
// definite one (Demmel and Veselic 1992), which is what tells whether something is identifiable.
#pragma once

#include <vector>

#include "perseus/runtime/profiler/power_fit.h"

namespace perseus::profiler {

struct SymmetricEigen {
  std::vector<double> values;
  SquareMatrix vectors;  // Column k belongs to values[k].
};

SymmetricEigen DecomposeSymmetric(SquareMatrix matrix);

}  // namespace perseus::profiler
