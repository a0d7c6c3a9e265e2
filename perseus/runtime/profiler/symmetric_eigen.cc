#include "perseus/runtime/profiler/symmetric_eigen.h"

#include <cmath>
#include <cstddef>

namespace perseus::profiler {
namespace {

// Sweeps over all pairs converge quadratically; fifteen are far more than any matrix took.
constexpr int kMostSweeps = 30;

void Rotate(SquareMatrix& matrix, SquareMatrix& vectors, std::size_t p, std::size_t q) {
  const double off = matrix.At(p, q);
  if (off == 0) return;
  const double theta = (matrix.At(q, q) - matrix.At(p, p)) / (2 * off);
  const double t = std::copysign(1 / (std::abs(theta) + std::hypot(1, theta)), theta);
  const double c = 1 / std::hypot(1, t);
  const double s = t * c;
  for (std::size_t k = 0; k < matrix.size; ++k) {
    const double a = matrix.At(k, p);
    const double b = matrix.At(k, q);
    matrix.At(k, p) = c * a - s * b;
    matrix.At(k, q) = s * a + c * b;
  }
  for (std::size_t k = 0; k < matrix.size; ++k) {
    const double a = matrix.At(p, k);
    const double b = matrix.At(q, k);
    matrix.At(p, k) = c * a - s * b;
    matrix.At(q, k) = s * a + c * b;
  }
  for (std::size_t k = 0; k < matrix.size; ++k) {
    const double a = vectors.At(k, p);
    const double b = vectors.At(k, q);
    vectors.At(k, p) = c * a - s * b;
    vectors.At(k, q) = s * a + c * b;
  }
}

}  // namespace

SymmetricEigen DecomposeSymmetric(SquareMatrix matrix) {
  SymmetricEigen eigen;
  eigen.vectors.GrowTo(matrix.size);
  for (std::size_t i = 0; i < matrix.size; ++i) eigen.vectors.At(i, i) = 1;
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    double off = 0;
    double on = 0;
    for (std::size_t i = 0; i < matrix.size; ++i) {
      on += matrix.At(i, i) * matrix.At(i, i);
      for (std::size_t j = 0; j < i; ++j) off += matrix.At(i, j) * matrix.At(i, j);
    }
    if (off <= 1e-30 * on) break;
    for (std::size_t p = 0; p < matrix.size; ++p) {
      for (std::size_t q = p + 1; q < matrix.size; ++q) Rotate(matrix, eigen.vectors, p, q);
    }
  }
  for (std::size_t i = 0; i < matrix.size; ++i) eigen.values.push_back(matrix.At(i, i));
  return eigen;
}

}  // namespace perseus::profiler
