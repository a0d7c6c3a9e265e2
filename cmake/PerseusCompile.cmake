# How every target of this project is compiled: C++20, warnings as errors, sanitizers on request.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# The rooms are static libraries, and libperseus.so is made of them.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()

# Paths below the source directory do not tell checkouts apart, so that one has use of what another
# compiled.
find_program(PERSEUS_CCACHE ccache)
if(PERSEUS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true
      CCACHE_SLOPPINESS=pch_defines,time_macros ${PERSEUS_CCACHE})
endif()

add_library(perseus_flags INTERFACE)
target_include_directories(perseus_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
target_compile_options(perseus_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror=unused-result)
option(PERSEUS_WERROR "Treat warnings as errors" ON)
if(PERSEUS_WERROR)
  target_compile_options(perseus_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(perseus_flags INTERFACE -Wthread-safety)
endif()
# Of the tests' own code. What it tests is optimized; optimizing the tests, too, takes nearly twice as
# long to compile (3.4 s or 6.0 s a file) and finds nothing.
add_library(perseus_test_flags INTERFACE)
target_link_libraries(perseus_test_flags INTERFACE perseus_flags)
target_compile_options(perseus_test_flags INTERFACE $<$<CONFIG:Release>:-O0>)
if(PERSEUS_SANITIZE)
  add_compile_options(-fsanitize=${PERSEUS_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PERSEUS_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
    # With it, coroutines do not compile ("Cannot represent a difference across sections").
    add_compile_options(-fno-sanitize=function)
  endif()
endif()
