#include "tests/oracle/random_network.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <random>
#include <utility>

namespace perseus {
namespace {

struct Problem {
  std::vector<profile::Curve> curves;
  std::vector<std::int32_t> curve_of_instruction;
  std::vector<schedule::Dependency> dependencies;
};

class RandomDraw {
 public:
  RandomDraw(Scale scale, std::uint64_t seed) : scale_(scale), random_(seed) {}

  Problem AnyOrder() {
    AddCurves();
    const int instructions = 1 + Below(16);
    const int dependencies = instructions * (1 + Below(3));
    for (int i = 0; i < instructions; ++i) AddInstruction();
    for (int i = 0; i < dependencies; ++i) {
      const int a = Below(instructions);
      const int b = Below(instructions);
      if (a != b) AddDependency(std::min(a, b), std::max(a, b));
    }
    return problem_;
  }

  Problem Layered() {
    AddCurves();
    std::vector<int> before;
    const int layers = 1 + Below(6);
    for (int layer = 0; layer < layers; ++layer) {
      std::vector<int> present;
      const int width = 1 + Below(5);
      for (int i = 0; i < width; ++i) {
        present.push_back(AddInstruction());
        for (const int from : before) {
          if (OneIn(2)) AddDependency(from, present.back());
        }
      }
      before = present;
    }
    return problem_;
  }

  Problem SeriesParallel() {
    AddCurves();
    AddBlock(3);
    return problem_;
  }

  // Rank r runs (ranks - r) forwards first, then one backward and one forward in turn.
  Problem Pipeline() {
    const int ranks = 1 + Below(4);
    const int microbatches = 1 + Below(5);
    const auto instruction = [&](int rank, bool backward, int microbatch) {
      return (2 * rank + (backward ? 1 : 0)) * microbatches + microbatch;
    };
    const int curves =
        OneIn(3) ? 2 : 2 * ranks;  // All ranks share two curves, or each has its own.
    for (int i = 0; i < curves; ++i) problem_.curves.push_back(RandomCurve());
    for (int rank = 0; rank < ranks; ++rank) {
      for (int i = 0; i < 2 * microbatches; ++i) {
        problem_.curve_of_instruction.push_back((2 * rank + i / microbatches) % curves);
      }
      int last = -1;
      for (int step = 0; step < microbatches + ranks - rank; ++step) {
        const int backward = step - (ranks - rank);
        for (const auto& [is_backward, microbatch] : {std::pair{true, backward}, {false, step}}) {
          if (microbatch < 0 || microbatch >= microbatches) continue;
          const int next = instruction(rank, is_backward, microbatch);
          if (last >= 0) AddDependency(last, next);
          last = next;
        }
      }
      for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
        if (rank + 1 < ranks) {
          AddDependency(instruction(rank, false, microbatch),
                        instruction(rank + 1, false, microbatch));
          AddDependency(instruction(rank + 1, true, microbatch),
                        instruction(rank, true, microbatch));
        }
        AddDependency(instruction(rank, false, microbatch), instruction(rank, true, microbatch));
      }
    }
    return problem_;
  }

 private:
  // Returns a number from 0 to end - 1. std::uniform_int_distribution differs between libraries.
  int Below(int end) { return static_cast<int>(random_() % static_cast<std::uint64_t>(end)); }
  bool OneIn(int n) { return Below(n) == 0; }

  profile::Curve RandomCurve() {
    const int largest = scale_ == Scale::kTies ? 4 : 1000;
    const Nanoseconds time_unit = scale_ == Scale::kMeasured ? 100'000 : 1;
    const std::int64_t slope_unit = scale_ == Scale::kMeasured ? 1'000'000 : 1;
    const auto any = [&](std::int64_t unit) {
      return (1 + Below(largest)) * unit + (unit > 1 ? Below(1000) : 0);
    };
    profile::Curve curve;
    const int segments = OneIn(6) ? 0 : 1 + Below(scale_ == Scale::kTies ? 3 : 6);
    std::vector<Microwatts> slopes(static_cast<std::size_t>(segments));
    for (Microwatts& slope : slopes) slope = Microwatts(any(slope_unit));
    std::sort(slopes.begin(), slopes.end(), std::greater<>());
    slopes.erase(std::unique(slopes.begin(), slopes.end()), slopes.end());
    curve.slopes = slopes;
    curve.times.push_back(any(time_unit));
    for (std::size_t i = 0; i < slopes.size(); ++i) {
      curve.times.push_back(curve.times.back() + any(time_unit));
    }
    return curve;
  }

  // If few curves serve many instructions, as in a pipeline, many cuts have the same cost.
  void AddCurves() {
    share_curves_ = OneIn(2);
    if (!share_curves_) return;
    const int curves = 1 + Below(4);
    for (int i = 0; i < curves; ++i) problem_.curves.push_back(RandomCurve());
  }

  int AddInstruction() {
    if (!share_curves_) problem_.curves.push_back(RandomCurve());
    const auto curves = static_cast<std::int32_t>(problem_.curves.size());
    problem_.curve_of_instruction.push_back(share_curves_ ? Below(curves) : curves - 1);
    return static_cast<int>(problem_.curve_of_instruction.size()) - 1;
  }

  void AddDependency(int from, int to) {
    const Nanoseconds delay = OneIn(8) ? 1 + Below(scale_ == Scale::kTies ? 4 : 1000) : 0;
    problem_.dependencies.push_back({from, to, delay});
    if (OneIn(16)) problem_.dependencies.push_back({from, to, 0});
  }

  struct Ends {
    std::vector<int> first;
    std::vector<int> last;
  };
  Ends AddBlock(int depth) {
    if (depth == 0 || OneIn(4)) {
      const int instruction = AddInstruction();
      return {{instruction}, {instruction}};
    }
    const bool in_series = OneIn(2);
    Ends all = AddBlock(depth - 1);
    for (int parts = 1 + Below(2); parts > 0; --parts) {
      const Ends next = AddBlock(depth - 1);
      if (in_series) {
        for (const int from : all.last) {
          for (const int to : next.first) AddDependency(from, to);
        }
        all.last = next.last;
      } else {
        all.first.insert(all.first.end(), next.first.begin(), next.first.end());
        all.last.insert(all.last.end(), next.last.begin(), next.last.end());
      }
    }
    return all;
  }

  Scale scale_;
  std::mt19937_64 random_;
  Problem problem_;
  bool share_curves_ = false;
};

}  // namespace

frontier::Network RandomNetwork(Shape shape, Scale scale, std::uint64_t seed) {
  RandomDraw draw(scale, seed);
  const Problem problem = shape == Shape::kAnyOrder         ? draw.AnyOrder()
                          : shape == Shape::kLayered        ? draw.Layered()
                          : shape == Shape::kSeriesParallel ? draw.SeriesParallel()
                                                            : draw.Pipeline();
  return *frontier::BuildNetwork(problem.curves, problem.curve_of_instruction,
                                 problem.dependencies);
}

frontier::Network RandomNetwork(std::uint64_t seed) {
  return RandomNetwork(kShapes[seed % std::size(kShapes)],
                       kScales[seed / std::size(kShapes) % std::size(kScales)], seed);
}

}  // namespace perseus
