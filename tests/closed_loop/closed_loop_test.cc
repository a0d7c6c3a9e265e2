// What was promised is what is measured: plans in force in a job of eight processes, judged by the
// virtual GPUs' own energy counters.
#include <gmock/gmock.h>

#include <cmath>
#include <csignal>
#include <iostream>

#include "closed_loop_job.h"
#include "perseus/tuner/orders_desk.h"

namespace perseus {
namespace {

using ::testing::HasSubstr;

// Of energy: what the issue of the closed loop asks for.
constexpr double kOnePoint = 0.01;

struct Promise {
  double saving = 0;
  double time_s = 0;
  double baseline_time_s = 0;
};

class ClosedLoopTest : public ClosedLoopJob {
 protected:
  Promise PlanWithTruth() const {
    RunWell("plan --job job.toml --no-frontier -o out");
    const nlohmann::json plan = nlohmann::json::parse(Read("out/plans/no-slowdown.json"));
    const nlohmann::json& baseline = plan.at("baseline");
    return {1 - plan.at("energy_j").get<double>() / baseline.at("energy_j").get<double>(),
            plan.at("time_s").get<double>(), baseline.at("time_s").get<double>()};
  }
  // Orders that put the plan into force at that step, before there are ranks.
  void OrderPlan(std::int64_t from_step) const {
    auto desk = OrdersDesk::Open(Directory() / "run");
    ASSERT_TRUE(desk) << desk.error().message;
    Orders orders;
    orders.plan = *desk->AddPlan("1", Read("out/plans/no-slowdown.json"));
    ASSERT_TRUE(desk->Give(orders, from_step));
  }
  // That the steps of [middle + 1, end) save what was promised against [1, middle): the first of
  // all, and the one in which all clocks change, are neither.
  void ExpectPromiseKept(const Promise& promise, std::size_t middle) {
    const std::vector<TrueStep> steps = TrueSteps();
    ASSERT_GT(steps.size(), middle + 2);
    const TrueMean baseline = MeanOf(steps, 1, middle);
    const TrueMean planned = MeanOf(steps, middle + 1, steps.size());
    const double saving = 1 - planned.energy_j / baseline.energy_j;
    const double slowdown = planned.time_s / baseline.time_s - 1;
    // Three standard errors of the difference, by the steps' own scatter, and half a percent for
    // what scatter does not show: with noise, a plan without slack waits for the slowest of many
    // paths where the baseline waits for one.
    const double noise =
        3 * std::hypot(planned.time_error_s, baseline.time_error_s) / baseline.time_s + 0.005;
    std::cout << fmt::format(
        "saving: promised {:.2f} %, measured {:.2f} %; slowdown: promised {:.2f} %, measured "
        "{:.2f} % "
        "(noise {:.2f} %); baseline step {:.4f} s, predicted {:.4f} s\n{}",
        promise.saving * 100, saving * 100, (promise.time_s / promise.baseline_time_s - 1) * 100,
        slowdown * 100, noise * 100, baseline.time_s, promise.baseline_time_s, Read("trainer.out"));
    EXPECT_NEAR(saving, promise.saving, kOnePoint);
    EXPECT_LT(slowdown, noise);
    EXPECT_GT(promise.saving, 3 * kOnePoint) << "a promise that would be kept by doing nothing";
  }
};

TEST_F(ClosedLoopTest, InterleavedPlanSavesWhatItPromised) {
  SetUpNodes("interleaved-1f1b", 8, "--chunks 2 --work-scale 0.35");
  const Promise promise = PlanWithTruth();
  OrderPlan(8);
  StartTrainer("--steps 16");
  AwaitTrainer();
  ExpectPromiseKept(promise, 8);
}

TEST_F(ClosedLoopTest, ZeroBubblePlanSavesWhatItPromised) {
  SetUpNodes("zb-h1", 6, "--instructions forward,backward_input,backward_weight --work-scale 0.5");
  const Promise promise = PlanWithTruth();
  OrderPlan(8);
  StartTrainer("--steps 16");
  AwaitTrainer();
  ExpectPromiseKept(promise, 8);
}

TEST_F(ClosedLoopTest, RankThatIsKilledLeavesNoClockSet) {
  SetUpNodes("1f1b", 6, "--work-scale 0.5");
  PlanWithTruth();
  OrderPlan(0);
  StartTrainer("");
  const VirtualNode node = OpenNode("b");
  const auto is_planned = [&] {
    const auto view = node.Look(2);
    return view && view->worker_pid != 0 && view->reading.lock.has_value();
  };
  ASSERT_TRUE(Comes(is_planned)) << Read("trainer.err");
  kill(node.Look(2)->worker_pid, SIGKILL);
  AwaitTrainer();
  EXPECT_THAT(Read("trainer.err"), HasSubstr("rank 2 of pipeline 1"));
  EXPECT_THAT(Read("trainer.err"), HasSubstr("was killed by signal 9"));
  EXPECT_TRUE(Comes([this] { return IsAllRestored(); }));
}

}  // namespace
}  // namespace perseus
