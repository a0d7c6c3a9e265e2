#include "perseus/runtime/node_devices/open_devices.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/fake_nvml/fake_node.h"
#include "tests/fake_rocm/fake_rocm.h"

namespace perseus::node_devices {
namespace {

using testing::HasSubstr;

TEST(OpenDevices, OpensTheNamedLibrary) {
  FakeNode fake;
  const Result<device::DeviceList> list = OpenDevices("nvml:" FAKE_NVML_LIBRARY);
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(list->devices.size(), 3U);
  EXPECT_TRUE(OpenDevices("rocm:" FAKE_ROCM_LIBRARY));
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
    const Result<device::DeviceList> list = OpenDevices("auto");
    ASSERT_TRUE(list) << list.error().message;
    ASSERT_EQ(list->devices.size(), 3U);
    EXPECT_EQ(list->devices[0]->info().backend, "nvml");
  }
  FakeNode without_gpus(std::vector<fake_nvml::GpuSpec>{});
  amd.count = 1;
  amd.gpus[0].unique_id = 1;
  const Result<device::DeviceList> list = OpenDevices("auto");
  ASSERT_TRUE(list) << list.error().message;
  ASSERT_EQ(list->devices.size(), 1U);
  EXPECT_EQ(list->devices[0]->info().backend, "rocm");
  amd.count = 0;
  const Result<device::DeviceList> none = OpenDevices("auto");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::kSystem);
  EXPECT_EQ(none.error().message, "no GPU found. NVIDIA: no GPU. AMD: no GPU");
}

TEST(OpenDevices, RefusesUnknownKinds) {
  for (const char* which : {"", "cuda", "nvml:", "rocm:", "virtual", "virtual:", ":x", "NVML"}) {
    const Result<device::DeviceList> list = OpenDevices(which);
    ASSERT_FALSE(list) << which;
    EXPECT_EQ(list.error().kind, ErrorKind::kInput) << which;
    EXPECT_THAT(list.error().message, HasSubstr("is no kind of GPU (write auto, nvml,"));
  }
}

TEST(OpenDevices, AMissingLibraryIsASystemError) {
  for (const char* which : {"nvml:/nonexistent.so", "rocm:/nonexistent.so"}) {
    const Result<device::DeviceList> list = OpenDevices(which);
    ASSERT_FALSE(list) << which;
    EXPECT_EQ(list.error().kind, ErrorKind::kSystem);
    EXPECT_THAT(list.error().message, HasSubstr("install"));
  }
}

}  // namespace
}  // namespace perseus::node_devices
