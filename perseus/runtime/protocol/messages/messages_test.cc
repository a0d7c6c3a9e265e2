#include "perseus/runtime/protocol/messages/messages.h"

#include <gmock/gmock.h>

#include <fstream>
#include <limits>
#include <set>

#include "tests/support/results.h"

namespace perseus::protocol {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> ManyGpus(int count) {
  std::vector<std::string> gpus;
  gpus.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) gpus.push_back("GPU-" + std::to_string(i));
  return gpus;
}

GpuStatus IdleGpu() {
  GpuStatus gpu;
  gpu.uuid = "GPU-2";
  return gpu;
}

GpuStatus BusyGpu() {
  GpuStatus gpu;
  gpu.index = 5;
  gpu.uuid = "GPU-1f";
  gpu.name = "NVIDIA A100-SXM4-80GB";
  gpu.trouble = "the driver is gone";
  gpu.lease = "7";
  gpu.job = "llama \"7b\" · größer";
  gpu.uid = std::numeric_limits<std::uint32_t>::max();
  gpu.pid = std::numeric_limits<std::int32_t>::max();
  gpu.held_s = 12.345678901234567;
  gpu.slowdown = 1.02;
  gpu.setting = "1200 MHz";
  gpu.before = "the driver's default";
  gpu.is_restoring = true;
  gpu.sm_clock_mhz = 1200;
  gpu.power_w = 0.1;
  gpu.temperature_c = -5;
  gpu.switches = kMostSwitches;
  gpu.postponed = 17;
  gpu.most_changes_per_s = 12.5;
  gpu.slow_by = "plan, temperature";
  gpu.overridden = "another program has locked the SM clock";
  return gpu;
}

// ---- Messages that are formatted and parsed again ----

TEST(Messages, RequestsComeBackEqual) {
  const Grant to_user{.gpus = {"GPU-1", "GPU-2"}, .uid = 1000, .cgroup = {}};
  const Grant to_cgroup{.gpus = {"GPU-1"}, .uid = {}, .cgroup = "/slurm/job_17"};
  for (const Request& request :
       {Request{Acquire{{"GPU-1f"}, "llama-7b", 30}},
        Request{Acquire{ManyGpus(64), "größe", 0x1.9p0}}, Request{Release{"7"}},
        Request{Renew{std::string(200, 'x')}}, Request{DeclareSlowdown{"7", 1.0199999999999998}},
        Request{List{}}, Request{ReleaseGpu{"GPU-1"}}, Request{to_user}, Request{to_cgroup},
        Request{Revoke{to_user}}, Request{Revoke{to_cgroup}},
        Request{Grant{.gpus = {"GPU-1"}, .uid = {}, .cgroup = "/"}}}) {
    const std::string text = Format(request);
    EXPECT_EQ(ValueOf(ParseRequest(text)), request) << text;
    EXPECT_THAT(text, ::testing::Not(HasSubstr("\n")));
  }
}

TEST(Messages, RepliesComeBackEqual) {
  Listing full;
  for (const std::string& uuid : ManyGpus(64)) {
    full.gpus.push_back(BusyGpu());
    full.gpus.back().uuid = uuid;
  }
  for (const Reply& reply :
       {Reply{Done{}}, Reply{Lease{"7", {"GPU-1", "GPU-2"}, {{210, 1410}, {345}}}},
        Reply{Listing{}}, Reply{Listing{{BusyGpu(), IdleGpu()}}}, Reply{full},
        Reply{Refused{Refusal::kMalformed, ""}},
        Reply{Refused{Refusal::kHeld, "held by job \"x\""}},
        Reply{Refused{Refusal::kNotAllowed, "no"}}, Reply{Refused{Refusal::kNoSuchGpu, "no"}},
        Reply{Refused{Refusal::kNoSuchLease, "no"}}, Reply{Refused{Refusal::kUnavailable, "no"}}}) {
    const std::string text = Format(reply);
    EXPECT_LE(text.size(), kLongestMessage);
    EXPECT_EQ(ValueOf(ParseReply(text)), reply) << text;
  }
}

// A lease of the largest number of GPUs. Each GPU has as many clocks as a GPU of today.
TEST(Messages, TheLargestLeaseFitsADatagram) {
  Lease lease{.id = "4294967295", .gpus = {}, .sm_clocks_mhz = {}};
  for (int i = 0; i < kMostGpus; ++i) {
    lease.gpus.push_back("GPU-12345678-1234-1234-1234-1234567890" + std::to_string(10 + i));
    std::vector<int>& clocks = lease.sm_clocks_mhz.emplace_back();
    for (int mhz = 135; mhz <= 2100; mhz += 15) clocks.push_back(mhz);
  }
  EXPECT_LE(Format(Reply{lease}).size(), kLongestMessage);
}

TEST(Messages, AreWrittenAsDocumented) {
  EXPECT_EQ(Format(Request{Acquire{{"GPU-1f"}, "llama-7b", 30}}),
            R"({"perseus":1,"acquire":{"gpus":["GPU-1f"],"job":"llama-7b","heartbeat_s":30.0}})");
  EXPECT_EQ(Format(Request{List{}}), R"({"perseus":1,"list":{}})");
  EXPECT_EQ(Format(Reply{Done{}}), R"({"perseus":1,"done":{}})");
  EXPECT_EQ(Format(Reply{Lease{"7", {"GPU-1f"}, {{210, 1410}}}}),
            R"({"perseus":1,"lease":{"id":"7","gpus":["GPU-1f"],"sm_clocks_mhz":[[210,1410]]}})");
  EXPECT_EQ(Format(Reply{Refused{Refusal::kNotAllowed, "ask root"}}),
            R"({"perseus":1,"error":{"code":"not-allowed","message":"ask root"}})");
}

TEST(Messages, EveryExampleInTheDocumentParses) {
  std::ifstream document(PERSEUS_SOURCE_DIR "/docs/agent.md");
  std::set<std::size_t> requests;
  std::set<std::size_t> replies;
  for (std::string line; std::getline(document, line);) {
    if (!line.starts_with("{")) continue;
    const auto request = ParseRequest(line);
    const auto reply = ParseReply(line);
    EXPECT_TRUE(request || reply) << line;
    if (request) requests.insert(request->index());
    if (reply) replies.insert(reply->index());
  }
  EXPECT_EQ(requests.size(), std::variant_size_v<Request>);
  EXPECT_EQ(replies.size(), std::variant_size_v<Reply>);
}

TEST(Messages, TheHeartbeatDefaultsToThirtySeconds) {
  EXPECT_EQ(ValueOf(ParseRequest(R"({"perseus":1,"acquire":{"gpus":["a"],"job":"b"}})")),
            (Request{Acquire{{"a"}, "b", 30}}));
}

// ---- Texts of drivers and failures ----

TEST(Messages, DriverMessagesAreSanitized) {
  GpuStatus gpu;
  gpu.uuid = "GPU-1";
  gpu.name = "line\nbreak \xFF \x1B[2J é";
  gpu.trouble = std::string(199, 'x') + "éé";
  gpu.pid = -1;
  gpu.held_s = std::numeric_limits<double>::infinity();
  gpu.slowdown = 0;
  gpu.sm_clock_mhz = -7;
  gpu.power_w = std::nan("");
  gpu.temperature_c = std::numeric_limits<int>::max();
  gpu.switches = std::numeric_limits<std::uint64_t>::max();
  gpu.postponed = std::numeric_limits<std::uint64_t>::max();
  gpu.most_changes_per_s = std::numeric_limits<double>::infinity();
  GpuStatus silent;
  silent.uuid = "GPU-2";
  const auto parsed = ValueOf(ParseReply(Format(Reply{Listing{{gpu, silent}}})));
  const GpuStatus& seen = std::get<Listing>(parsed).gpus[0];
  EXPECT_EQ(seen.name, "line?break ? ?[2J é");
  EXPECT_EQ(seen.trouble, std::string(197, 'x') + "...");
  EXPECT_EQ(seen.pid, 0);
  EXPECT_EQ(seen.slowdown, 1);
  EXPECT_EQ(seen.sm_clock_mhz, 0);
  EXPECT_EQ(seen.power_w, 0);
  EXPECT_EQ(seen.switches, kMostSwitches);
  EXPECT_EQ(std::get<Listing>(parsed).gpus[1], silent) << "unknown values are absent, not 0";
  EXPECT_EQ(seen.postponed, kMostSwitches);
  EXPECT_EQ(seen.most_changes_per_s, kMostChangesPerSecond);
}

TEST(Messages, LongRefusalsAreCutBetweenCharacters) {
  std::string message;
  while (message.size() < 2 * kLongestText) message += "é";
  const auto parsed = ValueOf(ParseReply(Format(Reply{Refused{Refusal::kHeld, message}})));
  const std::string& seen = std::get<Refused>(parsed).message;
  EXPECT_LE(seen.size(), kLongestText);
  EXPECT_THAT(seen, ::testing::EndsWith("é..."));
}

// The receiver refuses names that are not UTF-8. Nothing throws.
TEST(Messages, TheReceiverRefusesInvalidNames) {
  EXPECT_FALSE(ParseRequest(Format(Request{Release{"a\nb"}})));
  EXPECT_TRUE(ParseRequest(Format(Request{Release{"a\xFF"}})));  // U+FFFD replaces the byte.
}

// ---- Invalid messages ----

struct BadMessage {
  std::string text;
  std::string error;  // The beginning of the error after "request: " or "reply: ".
};

std::string Grants(const std::string& rest) {
  return R"({"perseus":1,"grant":{"gpus":["a"],)" + rest + "}}";
}

TEST(Messages, BadRequestsAreRefusedWithTheField) {
  const std::string long_name(kLongestName + 1, 'x');
  const BadMessage kBad[] = {
      {"", "request:1: not JSON"},
      {"\n{", "request:2: not JSON"},
      {"[]", "request: not an object"},
      {"{}", "request: perseus is missing (write \"perseus\":1)"},
      {R"({"perseus":2,"anything":3})",
       "request: perseus is \"2\", but this program supports only version 1"},
      {R"({"perseus":1.0,"list":{}})", "request: perseus is \"1.0\""},
      {R"({"perseus":"1","list":{}})", "request: perseus is \"\"1\"\""},
      {R"({"perseus":1})", "request: has 0 keys besides the version"},
      {R"({"perseus":1,"list":{},"renew":{"lease":"7"}})", "request: has 2 keys"},
      {R"({"perseus":1,"aquire":{}})",
       "request: \"aquire\" is not a known message (did you mean \"acquire\"?)"},
      {R"({"perseus":1,"list":{},"list":{}})", "request: key \"list\" appears twice"},
      {R"({"perseus":1,"list":{"a":1}})", "request: list has no key \"a\""},
      {R"({"perseus":1,"list":[]})", "request: list is not an object"},
      {R"({"perseus":1,"list":[[[[[[[[1]]]]]]]]})", "request: nested too deeply"},
      {R"({"perseus":1,"release":{}})", "request: release.lease is missing"},
      {R"({"perseus":1,"release":{"lease":7}})", "request: release.lease is not a string"},
      {R"({"perseus":1,"release":{"lease":""}})", "request: release.lease is empty"},
      {R"({"perseus":1,"release":{"lease":"\u0000"}})",
       "request: release.lease is \"\\x00\", which has control characters"},
      {R"({"perseus":1,"release":{"lease":")" + long_name + "\"}}",
       "request: release.lease has 201 bytes (write at most 200)"},
      {R"({"perseus":1,"renew":{"lease":"7","job":"x"}})", "request: renew has no key \"job\""},
      {R"({"perseus":1,"acquire":{"gpus":[],"job":"x"}})", "request: acquire.gpus has 0 GPUs"},
      {R"({"perseus":1,"acquire":{"gpus":"a","job":"x"}})", "request: acquire.gpus is not a list"},
      {R"({"perseus":1,"acquire":{"gpus":["a",5],"job":"x"}})",
       "request: acquire.gpus[1] is not a string"},
      {R"({"perseus":1,"acquire":{"gpus":["a","b","a"],"job":"x"}})",
       "request: acquire.gpus[2] is \"a\", which is already in the list"},
      {Format(Request{Acquire{ManyGpus(65), "x", 30}}), "request: acquire.gpus has 65 GPUs"},
      {R"({"perseus":1,"acquire":{"gpus":["a"],"job":"x","heartbeat_s":0.5}})",
       "request: acquire.heartbeat_s is not a number from 1 to 3600 (expected seconds)"},
      {R"({"perseus":1,"acquire":{"gpus":["a"],"job":"x","heartbeat_s":1e999}})", "request: "},
      {R"({"perseus":1,"declare_slowdown":{"lease":"7","slowdown":0.99}})",
       "request: declare_slowdown.slowdown is not a number from 1 to 100"},
      {R"({"perseus":1,"release_gpu":{"gpu":null}})", "request: release_gpu.gpu is not a string"},
      {R"({"perseus":1,"grant":{"gpus":["a"]}})", "request: grant needs either uid or cgroup"},
      {Grants(R"("uid":1,"cgroup":"/a")"), "request: grant needs either uid or cgroup"},
      {Grants(R"("uid":-1)"), "request: grant.uid is not a number from 0 to 4294967294"},
      {Grants(R"("uid":4294967295)"), "request: grant.uid is not a number from 0 to 4294967294"},
      {Grants(R"("uid":1.5)"), "request: grant.uid is not a whole number"},
      {Grants(R"("cgroup":"slurm")"), "request: grant.cgroup is \"slurm\", not the path"},
      {Grants(R"("cgroup":"")"), "request: grant.cgroup"},
      {Grants(R"("cgroup":"/a/")"), "request: grant.cgroup"},
      {Grants(R"("cgroup":"//a")"), "request: grant.cgroup"},
      {Grants(R"("cgroup":"/a/../b")"), "request: grant.cgroup"},
      {Grants(R"("cgroup":"/./b")"), "request: grant.cgroup"},
      {R"({"perseus":1,"revoke":{"gpus":["a"]}})", "request: revoke needs either uid or cgroup"},
      {std::string(kLongestMessage + 1, ' '), "request: has 65537 bytes (write at most 65536)"},
  };
  for (const BadMessage& bad : kBad) {
    EXPECT_THAT(ParseRequest(bad.text), FailsAs(ErrorKind::kInput, StartsWith(bad.error)))
        << bad.text;
  }
}

TEST(Messages, BadRepliesAreRefusedWithTheField) {
  const BadMessage kBad[] = {
      {R"({"perseus":1,"acquire":{"gpus":["a"],"job":"x"}})",
       "reply: \"acquire\" is not a known message"},
      {R"({"perseus":1,"done":{"really":true}})", "reply: done has no key \"really\""},
      {R"({"perseus":1,"error":{"code":"hold","message":""}})",
       "reply: error.code is \"hold\" (did you mean \"held\"?)"},
      {R"({"perseus":1,"error":{"code":"held"}})", "reply: error.message is missing"},
      {R"({"perseus":1,"lease":{"id":"7","gpus":["a"],"sm_clocks_mhz":[]}})",
       "reply: lease.sm_clocks_mhz has 0 GPUs (expected 1, as in gpus)"},
      {R"({"perseus":1,"lease":{"id":"7","gpus":["a"],"sm_clocks_mhz":[[]]}})",
       "reply: lease.sm_clocks_mhz[0] has 0 clocks"},
      {R"({"perseus":1,"lease":{"id":"7","gpus":["a"],"sm_clocks_mhz":[[210,210]]}})",
       "reply: lease.sm_clocks_mhz[0][1] is not above the previous clock"},
      {R"({"perseus":1,"lease":{"id":"7","gpus":["a"],"sm_clocks_mhz":[[210.5]]}})",
       "reply: lease.sm_clocks_mhz[0][0] is not a whole number"},
      {R"({"perseus":1,"lease":{"id":"7","gpus":["a"],"sm_clocks_mhz":[[[210]]]}})",
       "reply: nested too deeply"},
      {R"({"perseus":1,"listing":{"gpus":{}}})", "reply: listing.gpus is not a list"},
      {R"({"perseus":1,"listing":{"gpus":[{"index":0,"uuid":"a"}]}})",
       "reply: listing.gpus[0].name is missing"},
  };
  for (const BadMessage& bad : kBad) {
    EXPECT_THAT(ParseReply(bad.text), FailsAs(ErrorKind::kInput, StartsWith(bad.error)))
        << bad.text;
  }
}

}  // namespace
}  // namespace perseus::protocol
