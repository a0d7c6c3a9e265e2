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

find_program(PERSEUS_CCACHE ccache)
if(PERSEUS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PERSEUS_CCACHE})
endif()

add_library(perseus_flags INTERFACE)
target_compile_options(perseus_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror=unused-result)
option(PERSEUS_WERROR "Treat warnings as errors" ON)
if(PERSEUS_WERROR)
  target_compile_options(perseus_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(perseus_flags INTERFACE -Wthread-safety)
endif()
if(PERSEUS_SANITIZE)
  add_compile_options(-fsanitize=${PERSEUS_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PERSEUS_SANITIZE})
endif()
