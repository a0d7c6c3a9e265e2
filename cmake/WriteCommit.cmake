# cmake -DSOURCES=DIR -DOUTPUT=FILE -P WriteCommit.cmake: writes the commit of the sources and its date
# into a header. The header changes only with the commit, so that nothing is compiled again otherwise.
execute_process(COMMAND git -C ${SOURCES} describe --always --dirty --abbrev=12 --match v*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  set(commit "unknown commit")
  if(NOT "$ENV{PERSEUS_COMMIT}" STREQUAL "")  # From who has the repository (deploy/container/Dockerfile).
    set(commit "$ENV{PERSEUS_COMMIT}")
  endif()
endif()
execute_process(COMMAND git -C ${SOURCES} log -1 --format=%cs
  OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(text "#define PERSEUS_COMMIT \"${commit}\"\n#define PERSEUS_COMMIT_DATE \"${date}\"\n")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
  file(WRITE ${OUTPUT} "${text}")
endif()
