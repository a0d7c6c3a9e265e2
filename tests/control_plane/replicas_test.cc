// Failures of three server replicas that share one PostgreSQL database.
#include "tests/control_plane/replicas.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <iostream>
#include <thread>

#include "tests/control_plane/network.h"

namespace perseus {
namespace {

using nlohmann::json;

class ReplicasTest : public Replicas {
 protected:
  void Begin() {
    RegisterJob();
    StartNode();
    ASSERT_TRUE(Comes([this] { return VersionInForce() > 0; })) << Read("node.log");
    Attach("n1");
  }
};

TEST_F(ReplicasTest, KilledUnderLoadNothingIsLostOrSentTwice) {
  StartReplicas({"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"});
  Begin();
  const RecordedStream stream(urls(), "n1");
  StragglerLoad load(urls(), kKey);
  for (int round = 0; round < 4; ++round) {
    const std::int64_t version = VersionInForce();
    // Kills two replicas in turn: the replica of the real node, and the replica of the recorded
    // stream.
    int killed = -1;
    ASSERT_TRUE(Comes([&] {
      const int of_node = ReplicaOfNode();
      const int of_stream = ReplicaAt(stream.server());
      killed = round % 2 == 0 ? of_node : of_stream;
      return VersionInForce() > version && of_node >= 0 && of_stream >= 0;
    }));
    Kill(pid(killed), SIGKILL);
    EXPECT_TRUE(Comes([&] {
      const int of_node = ReplicaOfNode();
      return of_node >= 0 && of_node != killed;
    }));
    EXPECT_TRUE(Comes([&] { return ReplicaAt(stream.server()) >= 0; }));
    const std::int64_t during = VersionInForce();
    const int acknowledged = load.acknowledged();
    EXPECT_TRUE(
        Comes([&] { return VersionInForce() > during && load.acknowledged() > acknowledged; }));
    StartReplica(killed);
  }
  const int ran = steps();
  EXPECT_TRUE(Comes([&] { return steps() > ran + 3; })) << "the job goes on";
  load.End();
  ExpectNothingLost(load, stream);
}

TEST_F(ReplicasTest, WithoutTheDatabaseNodesKeepTheirAssignmentAndCatchUp) {
  StartReplicas({"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"});
  Begin();
  const RecordedStream stream(urls(), "n1");
  StragglerLoad load(urls(), kKey);
  ASSERT_TRUE(Comes([&] { return load.acknowledged() > 20; }));
  postgres().Stop();
  for (int replica = 0; replica < kReplicas; ++replica) {
    EXPECT_TRUE(Comes([&] { return Send(url(replica), "GET", "/readyz").status == 503; }));
    EXPECT_EQ(Send(url(replica), "GET", "/healthz").status, 200);
    EXPECT_THAT(Send(url(replica), "GET", "/metrics").body,
                testing::HasSubstr("perseus_server_ready 0"));
    const auto refused =
        Send(url(replica), "PUT", "/v1/jobs/run/stragglers/1", R"({"slowdown": 1.5})");
    EXPECT_EQ(refused.status, 503) << refused.body;
  }
  const std::string assignment = Read("run/assignment.json");
  const int ran = steps();
  EXPECT_TRUE(Comes([&] { return steps() > ran + 30; }));
  EXPECT_EQ(Read("run/assignment.json"), assignment);
  postgres().Start();
  for (int replica = 0; replica < kReplicas; ++replica) {
    EXPECT_TRUE(Comes([&] { return Send(url(replica), "GET", "/readyz").status == 200; }));
  }
  const int acknowledged = load.acknowledged();
  EXPECT_TRUE(Comes([&] { return load.acknowledged() > acknowledged + 20; }));
  load.End();
  ExpectNothingLost(load, stream);
}

// The network drops every packet from and to the database, and no replica is notified.
class SilentDatabaseTest : public ReplicasTest {
 protected:
  // The loss lasts at least for this time, and until all replicas have noticed it.
  void LoseFor(std::chrono::seconds outage);
};

void SilentDatabaseTest::LoseFor(std::chrono::seconds outage) {
  const std::string why_not = Network::WhyNot();
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  const Network network(1);
  StartReplicas({"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"}, {},
                PostgresServer::Machine{network.InsideWords(0), network.Address(0)});
  Begin();
  const RecordedStream stream(urls(), "n1");
  StragglerLoad load(urls(), kKey);
  ASSERT_TRUE(Comes([&] { return load.acknowledged() > 20; }));
  network.Silence(0);
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (int replica = 0; replica < kReplicas; ++replica) {
    EXPECT_TRUE(Comes([&] { return Send(url(replica), "GET", "/readyz").status == 503; }));
    EXPECT_EQ(Send(url(replica), "GET", "/healthz").status, 200);
  }
  std::cout << fmt::format("not ready {:.1f} s after the loss\n", seconds());
  const int acknowledged = load.acknowledged();
  const std::string assignment = Read("run/assignment.json");
  const int ran = steps();
  EXPECT_TRUE(Comes([&] { return steps() > ran + 30; })) << "the job goes on";
  std::this_thread::sleep_until(begin + outage);
  EXPECT_EQ(load.acknowledged(), acknowledged) << "without a database";
  EXPECT_EQ(Read("run/assignment.json"), assignment);
  network.EndSilence(0);
  for (int replica = 0; replica < kReplicas; ++replica) {
    EXPECT_TRUE(Comes([&] { return Send(url(replica), "GET", "/readyz").status == 200; }));
  }
  std::cout << fmt::format("ready {:.1f} s after it, ", seconds());
  EXPECT_TRUE(Comes([&] { return load.acknowledged() > acknowledged + 20; }));
  std::cout << fmt::format("serving {:.1f} s after it\n", seconds());
  load.End();
  ExpectNothingLost(load, stream, Unanswered::kMayComeLate);
}

TEST_F(SilentDatabaseTest, NothingIsLostUntilTheReplicasNotice) {
  LoseFor(std::chrono::seconds(0));
}

TEST_F(SilentDatabaseTest, ForAMinuteNothingIsLost) { LoseFor(std::chrono::minutes(1)); }

// Behind a cut cable no connection is closed, and no request is answered.
TEST_F(ReplicasTest, CutOffReplicaIsReplacedByAnother) {
  const std::string why_not = Network::WhyNot();
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  const Network network(kReplicas);
  StartReplicasIn(network);
  Begin();
  const RecordedStream stream(urls(), "n1");
  StragglerLoad load(urls(), kKey);
  int cut = -1;
  ASSERT_TRUE(Comes([&] {
    cut = ReplicaOfNode();
    return load.acknowledged() > 20 && cut >= 0;
  }));
  network.Cut(cut);
  const auto is_elsewhere = [&] {
    const int of_node = ReplicaOfNode();
    const int of_stream = ReplicaAt(stream.server());
    return of_node >= 0 && of_node != cut && of_stream >= 0 && of_stream != cut;
  };
  EXPECT_TRUE(Comes(is_elsewhere)) << Read("node.log");
  const int acknowledged = load.acknowledged();
  const std::int64_t version = VersionInForce();
  EXPECT_TRUE(
      Comes([&] { return load.acknowledged() > acknowledged + 5 && VersionInForce() > version; }));
  network.Repair(cut);
  load.End();
  ExpectNothingLost(load, stream);
}

}  // namespace
}  // namespace perseus
