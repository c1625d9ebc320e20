# `cmake --install` and the package behind find_package(lockstep): include after the last library.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
set(private_folder ${CMAKE_INSTALL_LIBDIR}/lockstep)  # shared libraries, tutorials

# Libraries that only tools and tutorials share are not installed.
get_property(all_libraries GLOBAL PROPERTY LOCKSTEP_LIBRARIES)
set(libraries "")
foreach(library IN LISTS all_libraries)
  get_target_property(folder ${library} SOURCE_DIR)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
  if(NOT folder MATCHES "^(tools|tutorials)(/|$)")
    list(APPEND libraries ${library})
  endif()
endforeach()

# lockstep::lockstep is all of the libraries at once, for programs that include lockstep.h.
add_library(lockstep_all INTERFACE)
add_library(lockstep::lockstep ALIAS lockstep_all)
set_target_properties(lockstep_all PROPERTIES EXPORT_NAME lockstep)
target_link_libraries(lockstep_all INTERFACE ${libraries})

# Shared libraries, in builds that make them, find each other and CUDA's runtime.
set_target_properties(${libraries} PROPERTIES
  INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON)

# The component development: what a program of one's own is built with, and all that
# `cmake --build <folder> --target lockstep_development` has to build.
add_custom_target(lockstep_development DEPENDS ${libraries})
lockstep_build_missing(development ${libraries})
install(TARGETS ${libraries} lockstep_all EXPORT lockstepTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
  LIBRARY DESTINATION ${private_folder} COMPONENT program)
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION ${package_folder} COMPONENT development)
foreach(folder engine kernels simulate datasets)
  # Eigen is private to kernels/cpu, so the headers there would not compile elsewhere.
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep COMPONENT development
    FILES_MATCHING PATTERN "*.h" PATTERN "*.inc" PATTERN kernels/cpu EXCLUDE
    PATTERN "json_file.h" EXCLUDE)  # for whoever has nlohmann/json
endforeach()
install(FILES lockstep.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep COMPONENT development)

# The components program and tutorials. A package may bring libraries of its own in
# lib/lockstep (LockstepPackage.cmake), so the programs look there first.
set_target_properties(lockstep PROPERTIES INSTALL_RPATH "$ORIGIN/../${private_folder}")
lockstep_build_missing(program lockstep)
install(TARGETS lockstep RUNTIME_DEPENDENCY_SET linked_libraries
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
get_property(tutorials DIRECTORY tutorials PROPERTY BUILDSYSTEM_TARGETS)
get_property(bugs DIRECTORY tutorials/bugs PROPERTY BUILDSYSTEM_TARGETS)
list(APPEND tutorials ${bugs})
list(FILTER tutorials INCLUDE REGEX "^([0-9][0-9]_|bug_[0-9][0-9]$)")
set_target_properties(${tutorials} PROPERTIES INSTALL_RPATH "$ORIGIN/../${private_folder}")
lockstep_build_missing(tutorials ${tutorials})
install(TARGETS ${tutorials} RUNTIME_DEPENDENCY_SET linked_libraries
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tutorials)

# A consumer must find these, too; shared libraries bring CUDA's runtime along.
set(LOCKSTEP_NEEDS_CUDA OFF)
if(LOCKSTEP_HAVE_CUDA AND NOT BUILD_SHARED_LIBS AND NOT LOCKSTEP_CUDA STREQUAL "EMULATED")
  set(LOCKSTEP_NEEDS_CUDA ON)
endif()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/lockstepConfig.cmake.in
  ${PROJECT_BINARY_DIR}/lockstepConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
  DESTINATION ${package_folder} COMPONENT development)
