#include "perseus/runtime/agent/lease_table.h"

#include <gtest/gtest.h>

#include "perseus/base/excerpt.h"
#include "perseus/base/units.h"
#include "tests/support/results.h"

namespace perseus::agent {
namespace {

using protocol::Refusal;

constexpr Nanoseconds kHour = 3600 * kSecond;
constexpr ConnectionId kAnnConnection = 1;
constexpr ConnectionId kBobConnection = 2;
const Owner kAnn{{100, 7000}, 1000, "llama-7b"};
const Owner kBob{{200, 8000}, 2000, "bloom"};

LeaseTable::Wish Ask(const Owner& owner, ConnectionId connection, std::vector<std::string> gpus) {
  return {owner, connection, std::move(gpus), 30 * kSecond};
}

// A table and a clock that the test advances.
class LeaseTableTest : public ::testing::Test {
 protected:
  Lease Acquire(const Owner& owner, ConnectionId connection, std::vector<std::string> gpus) {
    Answer<Lease> lease = table_.Acquire(Ask(owner, connection, std::move(gpus)), now_);
    EXPECT_TRUE(lease) << lease.error().message;
    return lease.value_or(Lease());
  }
  // Advances the time, and checks as often as an agent does.
  std::vector<Lease> Watch(Nanoseconds duration) {
    std::vector<Lease> ended;
    const Nanoseconds end = now_ + duration;
    while (now_ < end && ended.empty()) {
      now_ = std::min(now_ + LeaseTable::kLongestGap, end);
      ended = table_.Expire(now_);
    }
    return ended;
  }
  bool IsFree(std::string_view gpu) const { return table_.HoldOf(gpu) == nullptr; }
  bool IsRestoring(std::string_view gpu) const {
    return !IsFree(gpu) && table_.HoldOf(gpu)->is_restoring;
  }

  LeaseTable table_{"9b2d61c4-1"};
  Nanoseconds now_ = 1000 * kSecond;
};

TEST_F(LeaseTableTest, AGpuGoesFromFreeToHeldToRestoringToFree) {
  EXPECT_TRUE(IsFree("GPU-a"));
  const Lease lease = Acquire(kAnn, kAnnConnection, {"GPU-a"});
  ASSERT_NE(table_.HoldOf("GPU-a"), nullptr);
  EXPECT_EQ(*table_.HoldOf("GPU-a"), (GpuHold{lease.id, kAnn, now_, false}));
  ASSERT_TRUE(table_.Release(lease.id, kAnnConnection, now_));
  EXPECT_TRUE(IsRestoring("GPU-a"));
  EXPECT_EQ(table_.Find(lease.id), nullptr);
  EXPECT_TRUE(table_.Restored("GPU-a", lease.id));
  EXPECT_TRUE(IsFree("GPU-a"));
}

TEST_F(LeaseTableTest, AHeldGpuIsRefusedWithItsHoldersName) {
  Acquire(kAnn, kAnnConnection, {"GPU-a"});
  now_ += 7260 * kSecond;
  const Answer<Lease> refused = table_.Acquire(Ask(kBob, kBobConnection, {"GPU-b", "GPU-a"}), now_);
  ASSERT_THAT(refused, FailsAs(Refusal::kHeld));
  EXPECT_EQ(
      refused.error().message,
      "GPU-a is held by job \"llama-7b\" (user 1000, process 100) for 2 h 1 min (wait for it, "
      "or have its user or root release it)");
  EXPECT_TRUE(IsFree("GPU-b")) << "all GPUs or none";
}

TEST_F(LeaseTableTest, AGpuThatIsBeingRestoredIsRefusedEvenToItsFormerOwner) {
  const Lease lease = Acquire(kAnn, kAnnConnection, {"GPU-a"});
  ASSERT_TRUE(table_.Release(lease.id, kAnnConnection, now_));
  now_ += 3 * kSecond;
  const Answer<Lease> refused = table_.Acquire(Ask(kAnn, kAnnConnection, {"GPU-a"}), now_);
  ASSERT_THAT(refused, FailsAs(Refusal::kHeld));
  EXPECT_NE(refused.error().message.find("GPU-a is being restored after job \"llama-7b\" (user "
                                         "1000, process 100), for 3 s now"),
            std::string::npos)
      << refused.error().message;
}

TEST_F(LeaseTableTest, InvalidRequestsAreMalformed) {
  const LeaseTable::Wish none = Ask(kAnn, kAnnConnection, {});
  const LeaseTable::Wish twice = Ask(kAnn, kAnnConnection, {"GPU-a", "GPU-a"});
  LeaseTable::Wish timeless = Ask(kAnn, kAnnConnection, {"GPU-a"});
  timeless.heartbeat_period = 0;
  for (const LeaseTable::Wish& wish : {none, twice, timeless}) {
    EXPECT_THAT(table_.Acquire(wish, now_), FailsAs(Refusal::kMalformed));
  }
  EXPECT_TRUE(IsFree("GPU-a"));
}

TEST_F(LeaseTableTest, AJobsNameCannotControlATerminal) {
  Acquire({{1, 2}, 3, "\x1b[2J"}, kAnnConnection, {"GPU-a"});
  const Answer<Lease> refused = table_.Acquire(Ask(kBob, kBobConnection, {"GPU-a"}), now_);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(IsPrintable(refused.error().message));
}

TEST_F(LeaseTableTest, ACanceledLeaseLeavesItsGpusFree) {
  const Lease lease = Acquire(kAnn, kAnnConnection, {"GPU-a", "GPU-b"});
  EXPECT_TRUE(table_.Cancel(lease.id));
  EXPECT_TRUE(IsFree("GPU-a") && IsFree("GPU-b"));
  EXPECT_FALSE(table_.Cancel(lease.id));
  EXPECT_NE(Acquire(kAnn, kAnnConnection, {"GPU-a"}).id, lease.id) << "ids are not given twice";
}

TEST_F(LeaseTableTest, ALeaseIsValidOnlyOnItsConnection) {
  const Lease lease = Acquire(kAnn, kAnnConnection, {"GPU-a"});
  EXPECT_EQ(table_.Release(lease.id, kBobConnection, now_).error().code, Refusal::kNoSuchLease);
  EXPECT_EQ(table_.Renew(lease.id, kBobConnection, now_).error().code, Refusal::kNoSuchLease);
  EXPECT_EQ(table_.DeclareSlowdown(lease.id, kBobConnection, 1.5).error().code,
            Refusal::kNoSuchLease);
  EXPECT_EQ(*table_.Find(lease.id), lease);
}

TEST_F(LeaseTableTest, ALateReleaseDoesNotEndTheSuccessor) {
  const Lease first = Acquire(kAnn, kAnnConnection, {"GPU-a"});
  ASSERT_TRUE(table_.Release(first.id, kAnnConnection, now_));
  ASSERT_TRUE(table_.Restored("GPU-a", first.id));
  const Lease second = Acquire(kAnn, kAnnConnection, {"GPU-a"});
  const Answer<Lease> late = table_.Release(first.id, kAnnConnection, now_);
  ASSERT_FALSE(late);
  EXPECT_NE(late.error().message.find("was released"), std::string::npos) << late.error().message;
  EXPECT_FALSE(table_.Restored("GPU-a", first.id)) << "nor does a late word of its worker";
  EXPECT_NE(table_.Find(second.id), nullptr);
}

TEST_F(LeaseTableTest, ALeaseOfAnEarlierAgentIsRefusedWithThatReason) {
  for (const char* id : {"9b2d61c4-0-1", "9b2d61c4-12-1", "7"}) {
    const Answer<void> refused = table_.Renew(id, kAnnConnection, now_);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("does not belong to this agent"), std::string::npos)
        << refused.error().message;
  }
}

TEST_F(LeaseTableTest, IntentionsAreStoredWithinTheirRange) {
  const Lease lease = Acquire(kAnn, kAnnConnection, {"GPU-a"});
  EXPECT_TRUE(table_.DeclareSlowdown(lease.id, kAnnConnection, 1.02));
  for (double slowdown : {0.99, 101.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(table_.DeclareSlowdown(lease.id, kAnnConnection, slowdown).error().code,
              Refusal::kMalformed);
  }
  EXPECT_EQ(table_.Find(lease.id)->slowdown, 1.02);
}

TEST_F(LeaseTableTest, AGpuIsReleasedByItsOwnersUserAndByAdministrators) {
  struct Row {
    const char* name;
    LeaseTable::Requester requester;
    bool may;
  };
  for (const Row& row : {Row{"another user", {2000, false}, false},
                         Row{"user 0 without the right", {0, false}, false},
                         Row{"an administrator", {0, true}, true},
                         Row{"another process of the user", {1000, false}, true}}) {
    SCOPED_TRACE(row.name);
    const Lease lease = Acquire(kAnn, kAnnConnection, {"GPU-a", "GPU-b"});
    const Answer<Lease> ended = table_.ReleaseGpu("GPU-b", row.requester, now_);
    ASSERT_EQ(ended.has_value(), row.may);
    if (row.may) {
      EXPECT_EQ(ended->id, lease.id);
    } else {
      EXPECT_EQ(ended.error().code, Refusal::kNotAllowed);
      ASSERT_TRUE(table_.Release(lease.id, kAnnConnection, now_));
    }
    for (const char* gpu : {"GPU-a", "GPU-b"}) {
      EXPECT_TRUE(IsRestoring(gpu)) << "the whole lease ends";
      EXPECT_EQ(table_.ReleaseGpu(gpu, {0, true}, now_).error().code, Refusal::kNoSuchLease);
      ASSERT_TRUE(table_.Restored(gpu, lease.id));
    }
  }
  EXPECT_EQ(table_.ReleaseGpu("GPU-a", {0, true}, now_).error().code, Refusal::kNoSuchLease);
}

TEST_F(LeaseTableTest, TheEndOfAConnectionEndsOnlyItsLeases) {
  const Lease first = Acquire(kAnn, kAnnConnection, {"GPU-a"});
  const Lease other = Acquire(kBob, kBobConnection, {"GPU-b"});
  const Lease second = Acquire(kAnn, kAnnConnection, {"GPU-c"});
  EXPECT_EQ(table_.EndOfConnection(kAnnConnection, now_), (std::vector<Lease>{first, second}));
  EXPECT_TRUE(IsRestoring("GPU-a") && IsRestoring("GPU-c"));
  EXPECT_EQ(table_.leases().size(), 1U);
  EXPECT_EQ(*table_.Find(other.id), other);
  EXPECT_TRUE(table_.EndOfConnection(kAnnConnection, now_).empty());
}

TEST_F(LeaseTableTest, TheEndOfAProcessEndsItsLeasesButNotThoseOfAnotherWithTheSamePid) {
  const Lease lease = Acquire(kAnn, kAnnConnection, {"GPU-a"});
  EXPECT_TRUE(table_.EndOfProcess({100, 6999}, now_).empty());
  EXPECT_EQ(table_.EndOfProcess({100, 7000}, now_), std::vector<Lease>{lease});
  EXPECT_TRUE(IsRestoring("GPU-a"));
}

TEST_F(LeaseTableTest, AHeartbeatThatStopsEndsTheLease) {
  const Lease lease = Acquire(kAnn, kAnnConnection, {"GPU-a"});
  EXPECT_TRUE(Watch(29 * kSecond).empty());
  table_.Beat(lease.id, 0, now_);  // The counter does not change.
  const std::vector<Lease> ended = Watch(kSecond);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].id, lease.id);
  EXPECT_TRUE(IsRestoring("GPU-a"));
}

TEST_F(LeaseTableTest, AHeartbeatThatMovesKeepsTheLease) {
  const Lease lease = Acquire(kAnn, kAnnConnection, {"GPU-a"});
  for (std::uint64_t beat = 1; beat < 20; ++beat) {
    EXPECT_TRUE(Watch(20 * kSecond).empty());
    // Any other value counts as progress, because counters may start anywhere.
    table_.Beat(lease.id, beat % 2 == 0 ? beat : ~beat, now_);
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(Watch(20 * kSecond).empty());
    EXPECT_TRUE(table_.Renew(lease.id, kAnnConnection, now_));
  }
  EXPECT_EQ(Watch(30 * kSecond).size(), 1U);
}

TEST_F(LeaseTableTest, TimeWithoutChecksDoesNotCount) {
  const Lease lease = Acquire(kAnn, kAnnConnection, {"GPU-a"});
  EXPECT_TRUE(Watch(kSecond).empty());
  now_ += 3600 * kSecond;  // The agent was stopped, so it read no messages.
  EXPECT_TRUE(table_.Expire(now_).empty());
  // 1.5 s of the 30 s are used.
  EXPECT_TRUE(Watch(28 * kSecond).empty());
  EXPECT_EQ(Watch(kSecond).size(), 1U);
}

TEST_F(LeaseTableTest, TimeBeforeTheFirstCheckDoesNotCount) {
  Acquire(kAnn, kAnnConnection, {"GPU-a"});
  now_ += 3600 * kSecond;
  EXPECT_TRUE(table_.Expire(now_).empty());
}

TEST_F(LeaseTableTest, TimeBeforeTheLeaseDoesNotExtendIt) {
  EXPECT_TRUE(table_.Expire(now_).empty());
  now_ += 3600 * kSecond;  // Without a lease, the agent need not check heartbeats.
  Acquire(kAnn, kAnnConnection, {"GPU-a"});
  EXPECT_TRUE(Watch(29 * kSecond).empty());
  EXPECT_EQ(Watch(kSecond).size(), 1U);
}

TEST_F(LeaseTableTest, AClockThatGoesBackDoesNoHarm) {
  const Lease lease = Acquire(kAnn, kAnnConnection, {"GPU-a"});
  EXPECT_TRUE(Watch(10 * kSecond).empty());
  EXPECT_TRUE(table_.Expire(0).empty());
  table_.Beat(lease.id, 1, 0);
  EXPECT_TRUE(Watch(10 * kSecond).empty());
  EXPECT_NE(table_.Find(lease.id), nullptr);
}

TEST_F(LeaseTableTest, GpusOfAnEarlierAgentAreUnavailableUntilRestored) {
  table_.StartRestoring("GPU-a", "9b2d61c4-0-3", kBob, now_);
  EXPECT_EQ(table_.Acquire(Ask(kAnn, kAnnConnection, {"GPU-a"}), now_).error().code,
            Refusal::kHeld);
  EXPECT_FALSE(table_.Restored("GPU-a", "9b2d61c4-0-2"));
  EXPECT_TRUE(table_.Restored("GPU-a", "9b2d61c4-0-3"));
  const Lease lease = Acquire(kAnn, kAnnConnection, {"GPU-a"});
  table_.StartRestoring("GPU-a", "9b2d61c4-0-3", kBob, now_);
  EXPECT_EQ(table_.HoldOf("GPU-a")->lease, lease.id) << "too late to have any effect";
}

TEST(EpochOf, DiffersBetweenAgentsOfOneBootAndOfTwo) {
  EXPECT_EQ(EpochOf("9b2d61c4-7f0e-4a", 24 * kHour), "9b2d61c4-5265c00");
  EXPECT_NE(EpochOf("9b2d61c4", kSecond), EpochOf("9b2d61c4", 2 * kSecond));
  EXPECT_NE(EpochOf("9b2d61c4", kSecond), EpochOf("9b2d61c5", kSecond));
  EXPECT_EQ(EpochOf("short", 0), "short-0");
}

TEST(DescribeDuration, UsesTheTwoLargestUnits) {
  EXPECT_EQ(DescribeDuration(-5), "0 s");
  EXPECT_EQ(DescribeDuration(59 * kSecond), "59 s");
  EXPECT_EQ(DescribeDuration(61 * kSecond), "1 min 1 s");
  EXPECT_EQ(DescribeDuration(47 * kHour), "47 h 0 min");
  EXPECT_EQ(DescribeDuration(49 * kHour), "2 days 1 h");
}

}  // namespace
}  // namespace perseus::agent
