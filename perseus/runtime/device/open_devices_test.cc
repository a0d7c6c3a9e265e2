#include "perseus/runtime/device/open_devices.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/fake_nvml/fake_node.h"
#include "tests/fake_rocm/fake_rocm.h"

namespace perseus::device {
namespace {

using testing::HasSubstr;

Result<DeviceList> NoVirtual(const std::filesystem::path& description) {
  return Fail("no virtual GPUs: {}", description.string());
}

TEST(OpenDevices, OpensTheNamedLibrary) {
  FakeNode fake;
  const Result<DeviceList> list = OpenDevices("nvml:" FAKE_NVML_LIBRARY, NoVirtual);
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(list->devices.size(), 3U);
  EXPECT_TRUE(OpenDevices("rocm:" FAKE_ROCM_LIBRARY, NoVirtual));
}

// The loader finds a loaded library by its name, so the fakes replace the installed libraries.
TEST(OpenDevices, AutoIsNvmlIfItHasGpusAndRocmOtherwise) {
  const auto close = [](void* library) { ::dlclose(library); };
  const std::shared_ptr<void> nvml(::dlopen(FAKE_NVML_LIBRARY, RTLD_NOW), close);
  const std::shared_ptr<void> rocm(::dlopen(FAKE_ROCM_LIBRARY, RTLD_NOW), close);
  auto& amd = *reinterpret_cast<fake_rocm::Node* (*)()>(::dlsym(rocm.get(), "FakeRocmNode"))();
  amd = {};
  {
    FakeNode fake;
    const Result<DeviceList> list = OpenDevices("auto", NoVirtual);
    ASSERT_TRUE(list) << list.error().message;
    ASSERT_EQ(list->devices.size(), 3U);
    EXPECT_EQ(list->devices[0]->info().backend, "nvml");
  }
  FakeNode without_gpus(std::vector<fake_nvml::GpuSpec>{});
  amd.count = 1;
  amd.gpus[0].unique_id = 1;
  const Result<DeviceList> list = OpenDevices("auto", NoVirtual);
  ASSERT_TRUE(list) << list.error().message;
  ASSERT_EQ(list->devices.size(), 1U);
  EXPECT_EQ(list->devices[0]->info().backend, "rocm");
  amd.count = 0;
  const Result<DeviceList> none = OpenDevices("auto", NoVirtual);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::kSystem);
  EXPECT_EQ(none.error().message, "no GPU found. NVIDIA: no GPU. AMD: no GPU");
}

TEST(OpenDevices, LeavesVirtualGpusToTheProgram) {
  EXPECT_EQ(OpenDevices("virtual:a:b.toml", NoVirtual).error().message,
            "no virtual GPUs: a:b.toml");
}

TEST(OpenDevices, RefusesUnknownKinds) {
  for (const char* which : {"", "cuda", "nvml:", "rocm:", "virtual", "virtual:", ":x", "NVML"}) {
    const Result<DeviceList> list = OpenDevices(which, NoVirtual);
    ASSERT_FALSE(list) << which;
    EXPECT_EQ(list.error().kind, ErrorKind::kInput) << which;
    EXPECT_THAT(list.error().message, HasSubstr("is no kind of GPU (write auto, nvml,"));
  }
}

TEST(OpenDevices, AMissingLibraryIsASystemError) {
  for (const char* which : {"nvml:/nonexistent.so", "rocm:/nonexistent.so"}) {
    const Result<DeviceList> list = OpenDevices(which, NoVirtual);
    ASSERT_FALSE(list) << which;
    EXPECT_EQ(list.error().kind, ErrorKind::kSystem);
    EXPECT_THAT(list.error().message, HasSubstr("install"));
  }
}

}  // namespace
}  // namespace perseus::device
