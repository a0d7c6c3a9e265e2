# perseus_module(NAME [NOT_INSTALLED] [SOURCES extra.cc ...] LINKS modules-and-libraries ...
#                [PRIVATE_LINKS libraries ...] [TEST_SOURCES extra.cc ...] [TEST_LINKS ...]
#                [TESTS_WHOLE])
#
# One static library `perseus::NAME` for the folder of the calling CMakeLists.txt: every .cc file
# there but the tests. Every *_test.cc file there goes into the executable NAME_test. The path of a
# header in the repository is its path in an #include, and in the installed package.
#
# LINKS names every module whose headers this one includes; the test modules.includes holds the
# sources to it. PRIVATE_LINKS are libraries that only .cc files use.
# NOT_INSTALLED: a module that only our own programs use.
# `installed_modules` builds the libraries that `cmake --install` copies.
add_custom_target(installed_modules)
function(perseus_module name)
  cmake_parse_arguments(MODULE "NOT_INSTALLED;TESTS_WHOLE" "" "SOURCES;LINKS;PRIVATE_LINKS;TEST_SOURCES;TEST_LINKS"
    ${ARGN})
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
  list(TRANSFORM MODULE_PRIVATE_LINKS PREPEND "$<BUILD_INTERFACE:")
  list(TRANSFORM MODULE_PRIVATE_LINKS APPEND ">")
  target_link_libraries(perseus_${name}
    PUBLIC ${MODULE_LINKS}
    PRIVATE $<BUILD_INTERFACE:perseus_flags> ${MODULE_PRIVATE_LINKS})

  if(NOT MODULE_NOT_INSTALLED)
    add_dependencies(installed_modules perseus_${name})
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
    install(TARGETS perseus_${name} EXPORT perseusTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/
            DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder}
            FILES_MATCHING PATTERN "*.h")
  endif()

  if(PERSEUS_BUILD_TESTS AND tests)
    set(whole)
    if(MODULE_TESTS_WHOLE)
      set(whole WHOLE)
    endif()
    perseus_test(${name}_test SOURCES ${tests} ${MODULE_TEST_SOURCES}
      LINKS perseus::${name} ${MODULE_TEST_LINKS} ${MODULE_PRIVATE_LINKS} PREFIX ${name}
      LABELS unit ${whole})
  endif()
endfunction()

# perseus_test(NAME SOURCES ... LINKS ... [PREFIX ctest-prefix] [LABELS unit|process] [FILTER gtest-filter]
#              [PROPERTIES ...] [DEFINITIONS ...] [WHOLE])
#
# A GoogleTest executable. ctest lists each of its tests as PREFIX.Suite.Test. WHOLE: the executable
# is one test of ctest, for tests that share what is slow to start. With PERSEUS_TESTS_WHOLE all are:
# a process that runs under sanitizers takes long to start.
# `unit_tests` builds all of them that start no processes.
add_custom_target(unit_tests)
option(PERSEUS_TESTS_WHOLE "One test of ctest an executable, not one a GoogleTest test" OFF)
function(perseus_test name)
  cmake_parse_arguments(TEST "WHOLE" "PREFIX;FILTER" "SOURCES;LINKS;LABELS;PROPERTIES;DEFINITIONS"
    ${ARGN})
  if(NOT TEST_PREFIX)
    set(TEST_PREFIX ${name})
  endif()
  add_executable(${name} ${TEST_SOURCES})
  if("unit" IN_LIST TEST_LABELS)
    add_dependencies(unit_tests ${name})
  endif()
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${TEST_LINKS} perseus_test_flags GTest::gmock_main)
  target_compile_definitions(${name} PRIVATE
    PERSEUS_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ${TEST_DEFINITIONS})
  if(TEST_WHOLE OR PERSEUS_TESTS_WHOLE)
    # An empty filter selects no test at all.
    set(filter)
    if(TEST_FILTER)
      set(filter "--gtest_filter=${TEST_FILTER}")
    endif()
    add_test(NAME ${PERSEUS_TEST_PREFIX}${TEST_PREFIX} COMMAND ${name} --gtest_brief=1 ${filter})
    set_tests_properties(${PERSEUS_TEST_PREFIX}${TEST_PREFIX} PROPERTIES
      LABELS "${TEST_LABELS}" FAIL_REGULAR_EXPRESSION " 0 tests from" ${TEST_PROPERTIES})
    return()
  endif()
  set(filter)
  if(TEST_FILTER)
    set(filter TEST_FILTER ${TEST_FILTER})
  endif()
  gtest_discover_tests(${name} TEST_PREFIX ${PERSEUS_TEST_PREFIX}${TEST_PREFIX}. ${filter}
    NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${TEST_LABELS}" ${TEST_PROPERTIES})
endfunction()
