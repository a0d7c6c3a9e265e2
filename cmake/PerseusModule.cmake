# perseus_module(NAME [NOT_INSTALLED] [HOT] [SOURCES extra.cc ...] LINKS modules-and-libraries ...
#                [PRIVATE_LINKS libraries ...] [PRIVATE_HEADERS header-only-libraries ...]
#                [TEST_SOURCES extra.cc ...] [TEST_LINKS ...] [TESTS_WHOLE] [SLOW gtest-filter]
#                [TEST_LABEL unit|process])
#
# Makes one static library `perseus::NAME` of the folder of the calling CMakeLists.txt: of every .cc
# file there except the tests. Every *_test.cc file there goes into the executable NAME_test. The
# path of a header in the repository is its path in an #include, and in the installed package.
#
# LINKS: every module and library whose headers this module includes. The test style.modules checks
#   that the sources include nothing else.
# PRIVATE_LINKS: libraries that only .cc files include. A program that links the installed static
#   library has to link these libraries too, so perseusConfig.cmake.in must find them.
# PRIVATE_HEADERS: header-only libraries that only .cc files include. The installed package does not
#   need them.
# NOT_INSTALLED: only our own programs use the module.
# TEST_SOURCES, TEST_LINKS: further sources and libraries of the test.
# TESTS_WHOLE, SLOW, TEST_LABEL: see perseus_test. TEST_LABEL is unit if it is not given.
# HOT: the tests of the module compute for long. Under sanitizers it is optimized (-O2) and not
#   instrumented for fuzzers, which are for the modules that read files. Tests of the planner took
#   1.4 to 1.8 times as long without this.
#
# The target `installed_modules` builds the libraries that `cmake --install` copies.
add_custom_target(installed_modules)
function(perseus_module name)
  cmake_parse_arguments(MODULE "NOT_INSTALLED;HOT;TESTS_WHOLE" "SLOW;TEST_LABEL"
    "SOURCES;LINKS;PRIVATE_LINKS;PRIVATE_HEADERS;TEST_SOURCES;TEST_LINKS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")

  add_library(perseus_${name} STATIC ${sources} ${MODULE_SOURCES})
  add_library(perseus::${name} ALIAS perseus_${name})
  set_target_properties(perseus_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(perseus_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(perseus_${name} PUBLIC cxx_std_20)
  set(private_headers ${MODULE_PRIVATE_HEADERS})
  list(TRANSFORM private_headers PREPEND "$<BUILD_INTERFACE:")
  list(TRANSFORM private_headers APPEND ">")
  target_link_libraries(perseus_${name}
    PUBLIC ${MODULE_LINKS}
    PRIVATE $<BUILD_INTERFACE:perseus_flags> ${private_headers} ${MODULE_PRIVATE_LINKS})

  if(MODULE_HOT AND PERSEUS_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_compile_options(perseus_${name} PRIVATE -O2 -fno-sanitize-coverage=trace-cmp,indirect-calls,stack-depth,inline-8bit-counters,pc-table)
  endif()

  if(NOT MODULE_NOT_INSTALLED)
    add_dependencies(installed_modules perseus_${name})
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
    install(TARGETS perseus_${name} EXPORT perseusTargets
            ARCHIVE COMPONENT development DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/
            COMPONENT development DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder}
            FILES_MATCHING PATTERN "*.h")
  endif()

  if(PERSEUS_BUILD_TESTS AND tests)
    set(whole)
    if(MODULE_TESTS_WHOLE)
      set(whole WHOLE)
    endif()
    if(NOT MODULE_TEST_LABEL)
      set(MODULE_TEST_LABEL unit)
    endif()
    perseus_test(${name}_test SOURCES ${tests} ${MODULE_TEST_SOURCES} SLOW "${MODULE_SLOW}"
      LINKS perseus::${name} ${MODULE_TEST_LINKS} ${MODULE_PRIVATE_LINKS} ${MODULE_PRIVATE_HEADERS}
      PREFIX ${name} LABELS ${MODULE_TEST_LABEL} ${whole})
  endif()
endfunction()

# perseus_test(NAME SOURCES ... LINKS ... [PREFIX ctest-prefix] [LABELS unit|process]
#              [FILTER gtest-filter | SLOW gtest-filter] [PROPERTIES ...] [DEFINITIONS ...] [WHOLE])
#
# Makes a GoogleTest executable. ctest lists each of its tests as PREFIX.Suite.Test.
#
# WHOLE: ctest runs the executable as one test, because its tests share a resource that is slow to
#   start. With PERSEUS_TESTS_WHOLE, this holds for every executable: under sanitizers, a process
#   takes long to start.
# FILTER: ctest runs only these tests.
# SLOW: the tests that judge how good a result is, and take seconds, as a GoogleTest filter without
#   "-"; * for all. They get the label slow instead of LABELS, so scripts/test --fast leaves them
#   out. Sanitizers leave them out too: there they take minutes, and other tests run the same code.
#
# The target `unit_tests` builds all executables with the label unit, which start no processes.
add_custom_target(unit_tests)
option(PERSEUS_TESTS_WHOLE "One ctest test for each executable, not one for each GoogleTest test" OFF)
function(perseus_test name)
  cmake_parse_arguments(TEST "WHOLE" "PREFIX;FILTER;SLOW;LABELS" "SOURCES;LINKS;PROPERTIES;DEFINITIONS"
    ${ARGN})
  if(PERSEUS_SANITIZE AND TEST_SLOW STREQUAL "*")
    return()
  endif()
  if(NOT TEST_PREFIX)
    set(TEST_PREFIX ${name})
  endif()
  set(TEST_PREFIX ${PERSEUS_TEST_PREFIX}${TEST_PREFIX})
  add_executable(${name} ${TEST_SOURCES})
  if(TEST_LABELS STREQUAL "unit" AND NOT TEST_SLOW STREQUAL "*")
    add_dependencies(unit_tests ${name})
  endif()
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${TEST_LINKS} perseus_test_flags GTest::gmock_main)
  target_compile_definitions(${name} PRIVATE
    PERSEUS_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ${TEST_DEFINITIONS})

  if(NOT TEST_SLOW)
    perseus_add_tests(${TEST_LABELS} "${TEST_FILTER}")
  elseif(NOT TEST_SLOW STREQUAL "*")
    perseus_add_tests(${TEST_LABELS} "-${TEST_SLOW}")
  endif()
  if(TEST_SLOW AND NOT PERSEUS_SANITIZE)
    perseus_add_tests(slow "${TEST_SLOW}")
  endif()
endfunction()

# Tells ctest of the tests of perseus_test's executable that the filter selects; an empty filter: of
# all. Uses the variables of perseus_test.
macro(perseus_add_tests label filter)
  if(TEST_WHOLE OR PERSEUS_TESTS_WHOLE)
    # GoogleTest would take an empty filter as: no test.
    set(filter_argument)
    if(NOT "${filter}" STREQUAL "")
      set(filter_argument "--gtest_filter=${filter}")
    endif()
    add_test(NAME ${TEST_PREFIX} COMMAND ${name} --gtest_brief=1 ${filter_argument})
    # All tests of an executable, mostly under sanitizers, may take longer than ctest's limit for one.
    set_tests_properties(${TEST_PREFIX} PROPERTIES
      TIMEOUT 2400 LABELS ${label} FAIL_REGULAR_EXPRESSION " 0 tests from" ${TEST_PROPERTIES})
  else()
    set(filter_argument)
    if(NOT "${filter}" STREQUAL "")
      set(filter_argument TEST_FILTER "${filter}")
    endif()
    gtest_discover_tests(${name} TEST_PREFIX ${TEST_PREFIX}. ${filter_argument}
      NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${label} ${TEST_PROPERTIES})
  endif()
endmacro()
