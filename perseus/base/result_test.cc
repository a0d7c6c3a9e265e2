#include "perseus/base/result.h"

#include <gtest/gtest.h>

#include <string>

namespace perseus {
namespace {

Error ErrorOf(const Result<int>& result) { return result.error(); }

TEST(Fail, TakesTheLastPartInParenthesesAsTheRemedy) {
  const Error error = ErrorOf(Fail("the price {} is wrong (choose {} or less)", "2 (EUR)", 1));
  EXPECT_EQ(error.what, "the price 2 (EUR) is wrong");
  EXPECT_EQ(error.remedy, "choose 1 or less");
  EXPECT_EQ(error.Message(), "the price 2 (EUR) is wrong (choose 1 or less)");
  EXPECT_EQ(error.kind, ErrorKind::kInput);
}

TEST(Fail, TakesNestedParenthesesWhole) {
  const Error error = ErrorOf(Fail("no clock (lock one (nvidia-smi -lgc), or none)"));
  EXPECT_EQ(error.what, "no clock");
  EXPECT_EQ(error.remedy, "lock one (nvidia-smi -lgc), or none");
}

TEST(Fail, HasNoRemedyWithoutParenthesesOfItsOwn) {
  EXPECT_EQ(ErrorOf(Fail("cannot call {}", "f (x)")).remedy, "");
  EXPECT_EQ(ErrorOf(Fail("f(x) is not {}, nor g(x)", 1)).remedy, "");
  EXPECT_EQ(ErrorOf(Fail("{} (here) is {}", "this", "wrong)")).what, "this (here) is wrong)");
}

TEST(Fail, NumbersOfArgumentsReachTheRemedy) {
  const Error error = ErrorOf(Fail("{0} is missing (add {0} = {1})", "p2p", 2));
  EXPECT_EQ(error.what, "p2p is missing");
  EXPECT_EQ(error.remedy, "add p2p = 2");
}

TEST(Fail, PutsThePlaceFirst) {
  const Error error = ErrorOf(Fail(InFile("profile.csv", 17), "the row is empty (remove it)"));
  EXPECT_EQ(error.where, (Place{.file = "profile.csv", .line = 17}));
  EXPECT_EQ(error.Message(), "profile.csv:17: the row is empty (remove it)");
  EXPECT_EQ(error.Cause(), "profile.csv:17: the row is empty");
  EXPECT_EQ(InFile("plan.json").Text(), "plan.json");
}

TEST(Fail, PassesOnAnErrorAsOneOfALargerTask) {
  const Result<int> failed = FailAs(ErrorKind::kUnreachable, InFile("a.csv"), "no plan (wait)");
  const Error error = ErrorOf(Fail(Result<int>(Fail(failed, "stage 2")), "the job"));
  EXPECT_EQ(error.Message(), "the job: stage 2: a.csv: no plan (wait)");
  EXPECT_EQ(error.kind, ErrorKind::kUnreachable);
  EXPECT_EQ(error.remedy, "wait");
}

TEST(Fail, GivesAPlaceToAnErrorWithoutOne) {
  const Result<int> event = Fail(Result<int>(Fail("wrong")), "event 2");
  EXPECT_EQ(ErrorOf(Fail(event, InFile("t.json"))).Message(), "t.json: event 2: wrong");
  const Result<int> failed = Fail("wrong");
  EXPECT_EQ(ErrorOf(Fail(failed, InFile("a.csv", 2))).Message(), "a.csv:2: wrong");
  const Result<int> placed = Fail(InFile("b.csv", 1), "wrong");
  EXPECT_EQ(ErrorOf(Fail(placed, InFile("a.csv", 2))).Message(), "b.csv:1: wrong");
}

TEST(Error, NamesTheSettingThatHasToChange) {
  EXPECT_EQ(ErrorOf(Fail("`kept_mib` is above `activation_mib`")).setting(), "kept_mib");
  EXPECT_EQ(ErrorOf(Fail("no schedule (add `schedule = \"1f1b\"`)")).setting(), "schedule");
  EXPECT_EQ(ErrorOf(Fail("no schedule")).setting(), "");
}

}  // namespace
}  // namespace perseus
