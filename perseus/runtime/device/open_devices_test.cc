#include "perseus/runtime/device/open_devices.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/fake_nvml/fake_node.h"
#include "tests/fake_rocm/fake_rocm.h"
#include "tests/support/results.h"

namespace perseus::device {
namespace {

using testing::HasSubstr;

Result<DeviceList> NoVirtual(const std::filesystem::path& description) {
  return Fail("no virtual GPUs: {}", description.string());
}

TEST(OpenDevices, OpensTheNamedLibrary) {
  FakeNode fake;
  EXPECT_EQ(ValueOf(OpenDevices("nvml:" FAKE_NVML_LIBRARY, NoVirtual)).devices.size(), 3U);
  EXPECT_TRUE(OpenDevices("rocm:" FAKE_ROCM_LIBRARY, NoVirtual));
}

// The loader finds a loaded library by its name. So the fakes replace the installed libraries.
TEST(OpenDevices, AutoIsNvmlIfItHasGpusAndRocmOtherwise) {
  const auto close = [](void* library) { ::dlclose(library); };
  const std::shared_ptr<void> nvml(::dlopen(FAKE_NVML_LIBRARY, RTLD_NOW), close);
  const std::shared_ptr<void> rocm(::dlopen(FAKE_ROCM_LIBRARY, RTLD_NOW), close);
  auto& amd = *reinterpret_cast<fake_rocm::Node* (*)()>(::dlsym(rocm.get(), "FakeRocmNode"))();
  amd = {};
  {
    FakeNode fake;
    const DeviceList list = ValueOf(OpenDevices("auto", NoVirtual));
    ASSERT_EQ(list.devices.size(), 3U);
    EXPECT_EQ(list.devices[0]->info().backend, "nvml");
  }
  FakeNode without_gpus(std::vector<fake_nvml::GpuSpec>{});
  amd.count = 1;
  amd.gpus[0].unique_id = 1;
  const DeviceList list = ValueOf(OpenDevices("auto", NoVirtual));
  ASSERT_EQ(list.devices.size(), 1U);
  EXPECT_EQ(list.devices[0]->info().backend, "rocm");
  amd.count = 0;
  EXPECT_THAT(OpenDevices("auto", NoVirtual),
              FailsAs(ErrorKind::kSystem, "no GPU found. NVIDIA: no GPU. AMD: no GPU"));
}

TEST(OpenDevice, OpensOneGpuOfEachKind) {
  FakeNode fake;
  const auto choose = [](const FoundDevices& found) -> Result<std::size_t> {
    if (found.usable.empty()) return Fail("none");
    return found.usable.size() - 1;
  };
  const DeviceList by_uuid = ValueOf(OpenDevice("nvml:" FAKE_NVML_LIBRARY, NoVirtual,
                                                {.uuid = fake.node.Uuid(1), .choose = choose}));
  ASSERT_EQ(by_uuid.devices.size(), 1U);
  EXPECT_EQ(by_uuid.devices[0]->info().uuid, fake.node.Uuid(1));
  EXPECT_FALSE(by_uuid.devices[0]->info().sm_clocks_mhz.empty());

  const DeviceList chosen =
      ValueOf(OpenDevice("nvml:" FAKE_NVML_LIBRARY, NoVirtual, {.uuid = "", .choose = choose}));
  ASSERT_EQ(chosen.devices.size(), 1U);
  EXPECT_EQ(chosen.devices[0]->info().uuid, fake.node.Uuid(2));
  EXPECT_EQ(chosen.devices[0]->info().pci_bus_id, "00000000:03:00.0");

  EXPECT_THAT(OpenDevice("virtual:a.toml", NoVirtual, {.uuid = "", .choose = choose}),
              FailsAs(ErrorKind::kInput, "no virtual GPUs: a.toml"));
}

// A reload of the driver makes the handle invalid. Then the GPU is found by its UUID.
TEST(OpenDevice, TheGpuSurvivesAReloadOfTheDriver) {
  FakeNode fake;
  const DeviceList list = ValueOf(
      OpenDevice("nvml:" FAKE_NVML_LIBRARY, NoVirtual, {.uuid = fake.node.Uuid(1), .choose = {}}));
  EXPECT_TRUE(list.devices[0]->Read());
  fake.node.ReloadDriver();
  EXPECT_FALSE(list.devices[0]->Read());
  EXPECT_TRUE(list.devices[0]->Read());
}

TEST(OpenDevices, LeavesVirtualGpusToTheProgram) {
  EXPECT_EQ(OpenDevices("virtual:a:b.toml", NoVirtual).error().Message(),
            "no virtual GPUs: a:b.toml");
}

TEST(OpenDevices, RefusesUnknownKinds) {
  for (const char* which : {"", "cuda", "nvml:", "rocm:", "virtual", "virtual:", ":x", "NVML"}) {
    EXPECT_THAT(OpenDevices(which, NoVirtual),
                FailsAs(ErrorKind::kInput, HasSubstr("is no kind of GPU (write auto, nvml,")))
        << which;
  }
}

TEST(OpenDevices, AMissingLibraryIsASystemError) {
  for (const char* which : {"nvml:/nonexistent.so", "rocm:/nonexistent.so"}) {
    EXPECT_THAT(OpenDevices(which, NoVirtual), FailsAs(ErrorKind::kSystem, HasSubstr("install")))
        << which;
  }
}

}  // namespace
}  // namespace perseus::device
