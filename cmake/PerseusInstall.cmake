# The package that `find_package(perseus)` finds in another project. It has one target for each
# installed module (perseus::base, perseus::profile, ...): PerseusModule.cmake adds each to the export.
include(CMakePackageConfigHelpers)

set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/perseus)
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/perseusConfig.cmake.in ${PROJECT_BINARY_DIR}/perseusConfig.cmake
  INSTALL_DESTINATION ${package_directory})
# Before 1.0, each minor version may change any interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/perseusConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/perseusConfig.cmake
              ${PROJECT_BINARY_DIR}/perseusConfigVersion.cmake
        COMPONENT development DESTINATION ${package_directory})
install(EXPORT perseusTargets NAMESPACE perseus::
        COMPONENT development DESTINATION ${package_directory})
# Debian's packages name the license instead (deploy/debian/copyright).
if(NOT PERSEUS_DEBIAN)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE COMPONENT program DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()
