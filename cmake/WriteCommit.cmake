# cmake -DSOURCES=DIR -DOUTPUT=FILE -P WriteCommit.cmake: writes the commit of the sources into a
# header. The header changes only with the commit, so that nothing is compiled again otherwise.
execute_process(COMMAND git -C ${SOURCES} describe --always --dirty --abbrev=12 --match v*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  set(commit "unknown commit")
  if(NOT "$ENV{PERSEUS_COMMIT}" STREQUAL "")  # From who has the repository (deploy/container/Dockerfile).
    set(commit "$ENV{PERSEUS_COMMIT}")
  endif()
endif()
set(text "#define PERSEUS_COMMIT \"${commit}\"\n")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
  file(WRITE ${OUTPUT} "${text}")
endif()
