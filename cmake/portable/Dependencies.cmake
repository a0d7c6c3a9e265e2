# For programs that need nothing of the system but glibc 2.28 (preset `portable`): find_package gives the
# static libraries that scripts/portable-libraries has made in PERSEUS_PORTABLE_LIBRARIES, where Debian has
# only shared ones. Compile options are those of Debian's CMake packages, so that objects are the same as in
# other builds.
#
# CMake reads this file before the project (CMAKE_PROJECT_TOP_LEVEL_INCLUDES).
set(libraries ${PERSEUS_PORTABLE_LIBRARIES})
if(NOT EXISTS ${libraries}/libc.so)
  message(FATAL_ERROR "${libraries} has no libraries for glibc 2.28 (run scripts/portable-libraries)")
endif()

# -B: g++ takes crt1.o, libc and all other libraries from there first. No build ID: it is a hash that
# includes debug information with the paths of the build, and packages have no debug information. Two
# builds of one commit are the same without it.
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS "-B${libraries}/ -static-libstdc++ -static-libgcc -Wl,--build-id=none")
endforeach()
# No symbol of a static library is visible outside of a shared one.
foreach(kind SHARED MODULE)
  string(APPEND CMAKE_${kind}_LINKER_FLAGS " -Wl,--exclude-libs,ALL")
endforeach()

set(OPENSSL_USE_STATIC_LIBS ON)
set(ZLIB_USE_STATIC_LIBS ON)
set(SQLite3_LIBRARY /usr/lib/x86_64-linux-gnu/libsqlite3.a)
set(PostgreSQL_LIBRARY ${libraries}/libpq.a)

# perseus_static_library(TARGET ARCHIVE [DEFINITION...]) makes an imported target.
function(perseus_static_library target archive)
  if(NOT TARGET ${target})
    add_library(${target} STATIC IMPORTED GLOBAL)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${PERSEUS_PORTABLE_LIBRARIES}/${archive}
      INTERFACE_COMPILE_DEFINITIONS "${ARGN}")
  endif()
endfunction()

macro(perseus_find_static method package)
  if("${package}" STREQUAL "fmt")
    perseus_static_library(fmt::fmt libfmt.a FMT_SHARED)
    set(fmt_FOUND TRUE)
  elseif("${package}" STREQUAL "spdlog")
    perseus_static_library(spdlog::spdlog libspdlog.a SPDLOG_SHARED_LIB SPDLOG_COMPILED_LIB SPDLOG_FMT_EXTERNAL)
    set_target_properties(spdlog::spdlog PROPERTIES INTERFACE_LINK_LIBRARIES fmt::fmt)
    set(spdlog_FOUND TRUE)
  elseif("${package}" STREQUAL "prometheus-cpp")
    perseus_static_library(prometheus-cpp::core libprometheus-cpp-core.a)
    set(prometheus-cpp_FOUND TRUE)
  elseif("${package}" STREQUAL "tomlplusplus")
    perseus_static_library(tomlplusplus::tomlplusplus libtomlplusplus.a TOML_HEADER_ONLY=0 TOML_SHARED_LIB=1)
    set(tomlplusplus_FOUND TRUE)
  endif()
endmacro()
cmake_language(SET_DEPENDENCY_PROVIDER perseus_find_static SUPPORTED_METHODS FIND_PACKAGE)
