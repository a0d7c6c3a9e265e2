#include "perseus/runtime/qualifier/surroundings.h"

#include <gmock/gmock.h>

#include "tests/fake_nvml/fake_nvml.h"
#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus::qualifier {
namespace {

using fake_nvml::FakeNvml;
using fake_nvml::Function;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SurroundingsTest : public ::testing::Test {
 protected:
  SurroundingsTest() { node_.UseInThisProcess(); }

  Surroundings Look(const char* library = FAKE_NVML_LIBRARY) const {
    const auto found = LookAround(library, {node_.Uuid(0), node_.Uuid(1)});
    EXPECT_TRUE(found) << found.error().Message();
    // Each call of Init has a call of Shutdown.
    EXPECT_EQ(node_.Calls(Function::kInit), node_.Calls(Function::kShutdown));
    return found.value_or(Surroundings());
  }

  TemporaryDirectory directory_;
  FakeNvml node_ = FakeNvml::Create((directory_.path() / "node").string(), {.gpus = {{}, {}}});
};

TEST_F(SurroundingsTest, AQuietNodeHasNoPrograms) {
  for (const char* library : {FAKE_NVML_LIBRARY, FAKE_NVML_OLD_LIBRARY}) {
    const Surroundings found = Look(library);
    EXPECT_EQ(found.driver_version, "570.124.06");
    EXPECT_THAT(found.programs, IsEmpty());
    EXPECT_THAT(found.limits, IsEmpty());
  }
}

TEST_F(SurroundingsTest, ProgramsAreNamed) {
  node_.SetPrograms(0, {4242});
  node_.SetPrograms(1, {77, 78, 79});
  for (const char* library : {FAKE_NVML_LIBRARY, FAKE_NVML_OLD_LIBRARY}) {
    EXPECT_THAT(Look(library).programs,
                ElementsAre("process 4242 runs on " + node_.Uuid(0),
                            "3 processes run on " + node_.Uuid(1) + ", process 77 for example"));
  }
  node_.SetPrograms(0, std::vector<int>(20, 5));
  EXPECT_THAT(Look().programs[0], "20 processes run on " + node_.Uuid(0));
}

TEST_F(SurroundingsTest, LongerEntriesOfSomeDriversFit) {
  node_.UseLongPrograms(0, true);
  node_.SetPrograms(0, std::vector<int>(16, 5));
  EXPECT_THAT(Look().programs,
              ElementsAre("16 processes run on " + node_.Uuid(0) + ", process 5 for example"));
}

TEST_F(SurroundingsTest, AListThatFailsIsALimit) {
  node_.Fail(0, Function::kGetPrograms, fake_nvml::kNoPermission);
  node_.Fail(1, Function::kGetPrograms, fake_nvml::kNotSupported);
  const Surroundings found = Look();
  EXPECT_THAT(found.programs, IsEmpty());
  EXPECT_THAT(
      found.limits,
      ElementsAre(AllOf(HasSubstr(node_.Uuid(0) + " is unknown"), HasSubstr("NVML error 4")),
                  AllOf(HasSubstr(node_.Uuid(1) + " is unknown"), HasSubstr("NVML error 3"))));
}

TEST_F(SurroundingsTest, ADriverWithoutAVersionIsUnknown) {
  node_.Fail(FakeNvml::kEveryGpu, Function::kGetDriverVersion, fake_nvml::kUnknown);
  EXPECT_EQ(Look().driver_version, "unknown");
}

TEST_F(SurroundingsTest, GpusThatAreGoneAreLeftOut) {
  node_.SetPrograms(0, {4242});
  node_.Lose(0);
  EXPECT_THAT(Look().programs, IsEmpty());
}

TEST_F(SurroundingsTest, ADriverThatDoesNotStartIsAnError) {
  node_.UnloadDriver();
  EXPECT_THAT(LookAround(FAKE_NVML_LIBRARY, {node_.Uuid(0)}),
              FailsWith(HasSubstr("cannot start NVML: Driver Not Loaded")));
}

}  // namespace
}  // namespace perseus::qualifier
