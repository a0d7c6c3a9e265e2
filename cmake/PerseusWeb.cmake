# perseus_web_assets(variable) sets `variable` to the C++ file that contains the report page. npm makes
# it from web/. If npm or one of its packages is unavailable, a warning says what is missing and
# `variable` names a file without a page. Everything else then builds, and the program reports an error
# when a user asks for a report.
#
# Afterwards PERSEUS_HAS_PAGE says in every directory whether this build has the page, and PERSEUS_NODE
# is the node that runs the scripts of web/.
option(PERSEUS_BUILD_PAGE "Build the report page if node and npm are available" ON)
option(PERSEUS_REQUIRE_PAGE "Fail if the report page cannot be built" OFF)
find_program(PERSEUS_NODE node)
find_program(PERSEUS_NPM npm)

function(perseus_web_assets variable)
  set(web ${PROJECT_SOURCE_DIR}/web)
  set(${variable} ${PROJECT_SOURCE_DIR}/perseus/planning/report/no_page/no_assets.cc PARENT_SCOPE)
  set(PERSEUS_HAS_PAGE OFF CACHE INTERNAL "Whether this build has the report page")
  if(NOT PERSEUS_BUILD_PAGE)
    return()
  endif()
  set(severity WARNING)
  if(PERSEUS_REQUIRE_PAGE)
    set(severity FATAL_ERROR)
  endif()
  set(remedy "configure again after: apt-get install nodejs npm")
  if(NOT PERSEUS_NODE OR NOT PERSEUS_NPM)
    message(${severity} "node or npm is missing: reports and figures are left out (${remedy})")
    return()
  endif()
  execute_process(COMMAND ${PERSEUS_NODE} --version OUTPUT_VARIABLE version
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REPLACE "v" "" version "${version}")
  if(version VERSION_LESS 18)
    message(${severity}
      "node ${version} is too old (version 18 is needed): reports and figures are left out (${PERSEUS_NODE})")
    return()
  endif()

  # npm ci first removes the installed packages, so it runs only if the lock file has changed.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${web}/package-lock.json)
  set(installed ${web}/node_modules/.perseus-lock.sha256)
  file(SHA256 ${web}/package-lock.json wanted)
  set(present "")
  # Other build directories share node_modules.
  file(LOCK ${web} DIRECTORY GUARD FUNCTION TIMEOUT 600)
  if(EXISTS ${installed})
    file(READ ${installed} present)
  endif()
  if(NOT present STREQUAL wanted)
    message(STATUS "npm ci in ${web}")
    execute_process(COMMAND ${PERSEUS_NPM} ci --no-progress WORKING_DIRECTORY ${web}
      RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT status EQUAL 0)
      string(REGEX MATCH "npm (error|ERR!)[^\n]*" reason "${output}")
      message(${severity} "npm ci failed: reports and figures are left out (${reason})")
      return()
    endif()
    file(WRITE ${installed} ${wanted})
  endif()

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${web}/src/*)
  set(assets ${CMAKE_CURRENT_BINARY_DIR}/assets.cc)
  add_custom_command(OUTPUT ${assets}
    COMMAND ${PERSEUS_NODE} ${web}/build.mjs ${assets}
    DEPENDS ${sources} ${web}/build.mjs ${web}/tsconfig.json ${web}/package.json ${web}/package-lock.json
    COMMENT "Bundling the report page" VERBATIM)
  set(${variable} ${assets} PARENT_SCOPE)
  set(PERSEUS_HAS_PAGE ON CACHE INTERNAL "Whether this build has the report page")
endfunction()
