# The compile options of every target: C++20, warnings as errors, and sanitizers on request.
# docs/development.md has the measurements behind these choices.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# The modules are static libraries, and libperseus.so links them.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# No path of the build directory is in a program, so that packages are the same wherever they are made.
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Dev, Debug, Sanitize or RelWithDebInfo" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEV "-O1")
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1")

# ccache hashes paths below the source directory as relative paths, so that checkouts share compiled
# files.
find_program(PERSEUS_CCACHE ccache)
if(PERSEUS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true
      CCACHE_SLOPPINESS=pch_defines,time_macros ${PERSEUS_CCACHE})
endif()

# mold links server_test in 0.07 s, GNU ld in 0.43 s.
find_program(PERSEUS_MOLD mold)
if(PERSEUS_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(perseus_flags INTERFACE)
target_include_directories(perseus_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
target_compile_options(perseus_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror=unused-result)
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # In a unity batch, these two warnings would report each file-local type or alias. The dev preset
  # has them on.
  target_compile_options(perseus_flags INTERFACE -Wno-subobject-linkage -Wno-shadow)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 warns of coroutines in lambdas (false positives).
  target_compile_options(perseus_flags INTERFACE -Wno-mismatched-new-delete)
endif()
option(PERSEUS_WERROR "Treat warnings as errors" ON)
if(PERSEUS_WERROR)
  target_compile_options(perseus_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(perseus_flags INTERFACE -Wthread-safety)
endif()

# For the code of the tests. The code under test is optimized. Optimizing the tests too would double
# their compile time and find nothing.
add_library(perseus_test_flags INTERFACE)
target_link_libraries(perseus_test_flags INTERFACE perseus_flags)
target_compile_options(perseus_test_flags INTERFACE $<$<CONFIG:Release,Dev>:-O0>)
target_compile_definitions(perseus_test_flags INTERFACE $<$<CONFIG:Dev>:PERSEUS_FEW_CASES>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Tests may write EXPECT_EQ(json["n"], vector.size()).
  target_compile_options(perseus_test_flags INTERFACE -Wno-sign-conversion)
endif()

if(PERSEUS_SANITIZE)
  set(sanitizers ${PERSEUS_SANITIZE})
  if(PERSEUS_BUILD_FUZZERS)
    # The fuzzers need coverage. Tests ignore it, so one build serves both.
    string(APPEND sanitizers ",fuzzer-no-link")
  endif()
  add_compile_options(-fsanitize=${sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${sanitizers})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
    # With -fsanitize=function, coroutines do not compile ("Cannot represent a difference across
    # sections").
    add_compile_options(-fno-sanitize=function)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Asio allocates and frees coroutine frames itself, which g++ 12 wrongly reports as a mismatch.
    add_compile_options(-Wno-mismatched-new-delete)
  endif()
endif()
