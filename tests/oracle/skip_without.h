// Skips a test if a file of published measurements does not exist. This file is not part of the
// repository.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>

// A macro, because GTEST_SKIP leaves only the function that contains it.
#define SKIP_WITHOUT(path)                                                                         \
  if (!std::filesystem::exists(path)) {                                                            \
    GTEST_SKIP() << (path) << " is absent (set PERSEUS_SHARED_DIR to the folder of measurements)"; \
  }
