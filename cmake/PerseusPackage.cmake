# Debian packages, made by scripts/package with the preset `package`:
#
#   perseus          the program: agent, node and server are verbs of it; units and their settings
#   libperseus1      what a training process loads
#   libperseus-dev   the C header, and the C++ modules for find_package(perseus)
#   python3-perseus  the Python package
#
# Each is one install component. Why CPack: the files are those of `cmake --install`, so there is one
# list of them; debhelper would repeat it. What CPack does not make is in deploy/debian.
if(NOT PERSEUS_DEBIAN)
  return()
endif()

set(debian ${PROJECT_SOURCE_DIR}/deploy/debian)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME perseus)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # Each package has its own.
set(CPACK_PACKAGE_CONTACT "Perseus developers <perseus@localhost>")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_SET_DESTDIR ON)  # The settings in /etc are outside of the prefix.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/perseus/library)

# perseus_deb(COMPONENT NAME SECTION DESCRIPTION DEPENDS): the package of a component. The first line of
# DESCRIPTION is the synopsis. The files of deploy/debian/NAME are its control files.
macro(perseus_deb component name section description depends)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}")
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${description}")
  file(GLOB CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA CONFIGURE_DEPENDS ${debian}/${name}/*)
  install(FILES ${debian}/copyright ${PROJECT_BINARY_DIR}/changelog.gz
          COMPONENT ${component} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name})
endmacro()

set(library "libperseus1 (= ${PROJECT_VERSION})")
perseus_deb(program perseus admin "GPU clocks that save energy in large model training
Perseus measures the time and the energy of each stage of a training pipeline
at each GPU clock. It computes the time-energy frontier of an iteration, and
sets clocks so that the same training needs less energy without a slowdown.
.
This package has the program: the planner, and the agent, node and server
processes with their systemd units. No unit is enabled by itself."
  "adduser, ${library}")
perseus_deb(library libperseus1 libs "client library of Perseus for training processes
A training process tells this library when each instruction of a pipeline
begins and ends. The library requests the GPU clocks of the plan in force." "")
perseus_deb(development libperseus-dev libdevel "development files of Perseus
The C header of the client library, and the C++ modules of the planner with
their headers and a CMake package."
  "${library}, libexpected-dev, libfmt-dev, libtomlplusplus-dev, zlib1g-dev")
perseus_deb(python python3-perseus python "Python package of Perseus
Attaches Perseus to PyTorch, DeepSpeed and Megatron-core, marks the steps and
instructions of other training loops, and plans from Python."
  "${library}, python3 (>= 3.10), python3-numpy")
include(CPack)
