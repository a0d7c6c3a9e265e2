# perseus_room(NAME [NOT_INSTALLED] SOURCES a.cc ... TESTS a_test.cc ... LINKS rooms-and-libraries ...)
#
# One library target per folder of src/. A room's headers are reachable as "perseus/NAME/x.h" only
# by targets that link the room: each room exports an include directory of its own that holds a
# single link, perseus/NAME -> src/NAME. Including a room that is not linked therefore fails to
# build, and nobody has to police the floors. NOT_INSTALLED: a room that is our program's alone.
function(perseus_room name)
  cmake_parse_arguments(ROOM "NOT_INSTALLED" "" "SOURCES;TESTS;LINKS" ${ARGN})
  set(include_root ${PROJECT_BINARY_DIR}/rooms/${name})
  file(MAKE_DIRECTORY ${include_root}/perseus)
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${include_root}/perseus/${name} SYMBOLIC)

  add_library(perseus_${name} STATIC ${ROOM_SOURCES})
  add_library(perseus::${name} ALIAS perseus_${name})
  set_target_properties(perseus_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(perseus_${name} PUBLIC
    $<BUILD_INTERFACE:${include_root}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(perseus_${name} PUBLIC cxx_std_20)
  target_link_libraries(perseus_${name}
    PUBLIC ${ROOM_LINKS}
    PRIVATE $<BUILD_INTERFACE:perseus_flags>)

  if(NOT ROOM_NOT_INSTALLED)
    install(TARGETS perseus_${name} EXPORT perseusTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/
            DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/perseus/${name}
            FILES_MATCHING PATTERN "*.h")
  endif()

  if(PERSEUS_BUILD_TESTS AND ROOM_TESTS)
    add_executable(${name}_test ${ROOM_TESTS})
    target_link_libraries(${name}_test PRIVATE perseus::${name} perseus_test_flags GTest::gmock_main)
    target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests/support)
    target_compile_definitions(${name}_test PRIVATE
      PERSEUS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    gtest_discover_tests(${name}_test TEST_PREFIX ${PERSEUS_TEST_PREFIX}${name}. NO_PRETTY_VALUES
      DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
