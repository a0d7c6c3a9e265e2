# perseus_module(NAME [NOT_INSTALLED] [HOT] [SOURCES extra.cc ...] LINKS modules-and-libraries ...
#                [PRIVATE_LINKS libraries ...] [PRIVATE_HEADERS header-only-libraries ...]
#                [TEST_SOURCES extra.cc ...] [TEST_LINKS ...] [SLOW gtest-filter] [WAITS]
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
# SLOW, WAITS, TEST_LABEL: see perseus_test. TEST_LABEL is unit if it is not given.
# HOT: the tests of the module compute for long. Under sanitizers it is optimized (-O2), checked for
#   undefined behavior only, and not instrumented for fuzzers: the address sanitizer and fuzzers are
#   for the modules that read bytes or have threads.
#
# The target `installed_modules` builds the libraries that `cmake --install` copies.
add_custom_target(installed_modules)
function(perseus_module name)
  cmake_parse_arguments(MODULE "NOT_INSTALLED;HOT;WAITS" "SLOW;TEST_LABEL"
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
    target_compile_options(perseus_${name} PRIVATE -O2 -fno-sanitize=address -fno-sanitize-coverage=trace-cmp,indirect-calls,stack-depth,inline-8bit-counters,pc-table)
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
    if(NOT MODULE_TEST_LABEL)
      set(MODULE_TEST_LABEL unit)
    endif()
    set(waits)
    if(MODULE_WAITS)
      set(waits WAITS)
    endif()
    perseus_test(${name}_test SOURCES ${tests} ${MODULE_TEST_SOURCES} SLOW "${MODULE_SLOW}"
      LINKS perseus::${name} ${MODULE_TEST_LINKS} ${MODULE_PRIVATE_LINKS} ${MODULE_PRIVATE_HEADERS}
      PREFIX ${name} LABELS ${MODULE_TEST_LABEL} ${waits})
  endif()
endfunction()

# perseus_test(NAME SOURCES ... LINKS ... [PREFIX ctest-prefix] [LABELS label] [SLOW gtest-filter]
#              [EACH gtest-filter] [ALL gtest-filter] [WAITS] [PROPERTIES ...] [DEFINITIONS ...])
#
# Makes a GoogleTest executable. ctest runs all its tests in one process, in random order: 2,000
# processes for 2,000 tests took more time than the tests. It prints only the tests that fail, and
# then the seed of the order (tests/support/main.cc). docs/development.md lists the labels.
#
# SLOW: the tests that judge how good a result is, and take seconds, as a GoogleTest filter without
#   "-"; * for all. They get the label slow instead of LABELS, so scripts/test --fast leaves them
#   out. Sanitizers leave them out too: there they take minutes, and other tests run the same code.
# EACH: these tests are processes of their own, which ctest lists as PREFIX.Suite.Test, because they
#   take many seconds and may run side by side.
# ALL: the same, but only scripts/test --all runs these tests (label all), and no sanitizer.
# WAITS: the tests mostly wait, for a time or for other processes. scripts/test gives ctest four slots
#   for each core. Such a test takes one slot, others take three, so that all cores compute meanwhile.
#
# The target `unit_tests` builds all executables with the label unit, which start no processes.
add_custom_target(unit_tests)
function(perseus_test name)
  cmake_parse_arguments(TEST "WAITS" "PREFIX;SLOW;EACH;ALL;LABELS"
    "SOURCES;LINKS;PROPERTIES;DEFINITIONS" ${ARGN})
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
  target_link_libraries(${name} PRIVATE ${TEST_LINKS} perseus_test_flags perseus_test_main)
  target_compile_definitions(${name} PRIVATE
    PERSEUS_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ${TEST_DEFINITIONS})

  if(NOT TEST_WAITS)
    list(APPEND TEST_PROPERTIES PROCESSORS 3)
  endif()
  if(TEST_SLOW STREQUAL "*")
    set(TEST_LABELS slow)
    set(TEST_SLOW)
  endif()
  perseus_whole_test("" ${TEST_LABELS} "*" "${TEST_SLOW}" "${TEST_EACH}" "${TEST_ALL}")
  perseus_each_test(${TEST_LABELS} "${TEST_EACH}" "${TEST_ALL}")
  if(NOT PERSEUS_SANITIZE)
    perseus_whole_test(_slow slow "${TEST_SLOW}" "${TEST_EACH}" "${TEST_ALL}")
    perseus_each_test(all "${TEST_ALL}")
  endif()
endfunction()

# These two use the variables of perseus_test. They register the tests that the GoogleTest filter
# `only` selects, without those of the filters that follow it: in one process, or in one for each.
# They register nothing if the filter is empty, or if one that follows it is "*".
macro(perseus_whole_test suffix label only)
  perseus_test_filter("${only}" ${ARGN})
  if(filter)
    add_test(NAME ${TEST_PREFIX}${suffix}
      COMMAND ${name} --gtest_shuffle --gtest_brief=1 "--gtest_filter=${filter}")
    # The slow tests start early, so that they do not end alone. So do the longest of the others,
    # which take 13 to 41 s of CPU time.
    if("${label}" STREQUAL "slow")
      set_tests_properties(${TEST_PREFIX}${suffix} PROPERTIES COST 100)
    elseif(TEST_PREFIX MATCHES
           "(^|\\.)(cli|few_switches|job_planning|recipe|schedule_search|server|store|tuner)$")
      set_tests_properties(${TEST_PREFIX} PROPERTIES COST 200)
    endif()
    # All tests of an executable may take longer than ctest's limit for one.
    set_tests_properties(${TEST_PREFIX}${suffix} PROPERTIES
      TIMEOUT 1500 LABELS ${label} ${TEST_PROPERTIES})
  endif()
endmacro()
macro(perseus_each_test label only)
  perseus_test_filter("${only}" ${ARGN})
  if(filter)
    gtest_discover_tests(${name} TEST_PREFIX ${TEST_PREFIX}. TEST_FILTER "${filter}"
      TEST_LIST ${name}_${label} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
      PROPERTIES TIMEOUT 1500 LABELS ${label} ${TEST_PROPERTIES})
  endif()
endmacro()
macro(perseus_test_filter only)
  set(excluded ${ARGN})
  list(REMOVE_ITEM excluded "")
  set(filter ${only})
  if("*" IN_LIST excluded)
    set(filter)
  elseif(filter AND excluded)
    list(JOIN excluded ":" joined)
    string(APPEND filter ":-${joined}")
  endif()
endmacro()
