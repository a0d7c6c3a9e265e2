// Three replicas over one PostgreSQL, and what may happen to them.
#include "replicas.h"

#include <gmock/gmock.h>

#include <csignal>

#include "network.h"

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

TEST_F(ReplicasTest, KilledUnderLoadNothingAcknowledgedIsLostNorToldTwice) {
  StartReplicas({"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"});
  Begin();
  const RecordedStream stream(urls(), "n1");
  StragglerLoad load(urls(), kKey);
  for (int round = 0; round < 4; ++round) {
    const std::int64_t version = VersionInForce();
    ASSERT_TRUE(Comes([&] { return VersionInForce() > version && ReplicaOfNode() >= 0; }));
    // In turn the one that the real node hears, and the one that the recording one does.
    const int killed = round % 2 == 0 ? ReplicaOfNode() : ReplicaAt(stream.server());
    if (killed < 0) continue;
    Kill(pid(killed), SIGKILL);
    EXPECT_TRUE(Comes([&] { return ReplicaOfNode() >= 0 && ReplicaOfNode() != killed; }));
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

TEST_F(ReplicasTest, WithoutTheDatabaseNodesKeepTheirOrdersAndCatchUp) {
  StartReplicas({"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"});
  Begin();
  const RecordedStream stream(urls(), "n1");
  StragglerLoad load(urls(), kKey);
  ASSERT_TRUE(Comes([&] { return load.acknowledged() > 20; }));
  postgres().Stop();
  for (int replica = 0; replica < kReplicas; ++replica) {
    EXPECT_TRUE(Comes([&] { return Ask(url(replica), "GET", "/readyz").status == 503; }));
    EXPECT_EQ(Ask(url(replica), "GET", "/healthz").status, 200);
    const auto refused =
        Ask(url(replica), "PUT", "/v1/jobs/run/stragglers/1", R"({"slowdown": 1.5})");
    EXPECT_EQ(refused.status, 503) << refused.body;
  }
  const std::string orders = Read("run/orders.json");
  const int ran = steps();
  EXPECT_TRUE(Comes([&] { return steps() > ran + 30; }));
  EXPECT_EQ(Read("run/orders.json"), orders);
  postgres().Start();
  for (int replica = 0; replica < kReplicas; ++replica) {
    EXPECT_TRUE(Comes([&] { return Ask(url(replica), "GET", "/readyz").status == 200; }));
  }
  const int acknowledged = load.acknowledged();
  EXPECT_TRUE(Comes([&] { return load.acknowledged() > acknowledged + 20; }));
  load.End();
  ExpectNothingLost(load, stream);
}

// A cut cable says nothing: no connection is closed, and what was sent to it is never answered.
TEST_F(ReplicasTest, CutOffOneIsLeftForAnother) {
  const std::string why_not = Network::WhyNot();
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  const Network network(kReplicas);
  StartReplicasIn(network);
  Begin();
  const RecordedStream stream(urls(), "n1");
  StragglerLoad load(urls(), kKey);
  ASSERT_TRUE(Comes([&] { return load.acknowledged() > 20 && ReplicaOfNode() >= 0; }));
  const int cut = ReplicaOfNode();
  network.Cut(cut);
  const auto is_elsewhere = [&] {
    const int heard = ReplicaAt(stream.server());
    return ReplicaOfNode() >= 0 && ReplicaOfNode() != cut && heard >= 0 && heard != cut;
  };
  EXPECT_TRUE(Comes(is_elsewhere)) << Read("node.log");
  const int acknowledged = load.acknowledged();
  const std::int64_t version = VersionInForce();
  EXPECT_TRUE(
      Comes([&] { return load.acknowledged() > acknowledged + 5 && VersionInForce() > version; }));
  network.Mend(cut);
  load.End();
  ExpectNothingLost(load, stream);
}

}  // namespace
}  // namespace perseus
