# `cmake --install` and the package behind find_package(lockstep): include after the last library.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

# What tools and tutorials share among themselves stays here.
get_property(all_libraries GLOBAL PROPERTY LOCKSTEP_LIBRARIES)
set(libraries "")
foreach(library IN LISTS all_libraries)
  get_target_property(folder ${library} SOURCE_DIR)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
  if(NOT folder MATCHES "^(tools|tutorials)(/|$)")
    list(APPEND libraries ${library})
  endif()
endforeach()

# lockstep::lockstep is all of the libraries at once.
add_library(lockstep_all INTERFACE)
add_library(lockstep::lockstep ALIAS lockstep_all)
set_target_properties(lockstep_all PROPERTIES EXPORT_NAME lockstep)
target_link_libraries(lockstep_all INTERFACE ${libraries})

install(TARGETS ${libraries} lockstep_all EXPORT lockstepTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION ${package_folder})
foreach(folder engine kernels datasets)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${folder})
    # Eigen is private to kernels/cpu, so the headers there would not compile elsewhere.
    install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep
      FILES_MATCHING PATTERN "*.h" PATTERN kernels/cpu EXCLUDE)
  endif()
endforeach()
if(TARGET lockstep)
  install(TARGETS lockstep RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# The packages that a consumer must find too, read off what the libraries link.
set(linked "")
foreach(library IN LISTS libraries)
  get_target_property(its_links ${library} INTERFACE_LINK_LIBRARIES)
  list(APPEND linked ${its_links})
endforeach()
set(LOCKSTEP_FIND_DEPENDENCIES "")
foreach(package Threads fmt ZLIB OpenSSL nlohmann_json CUDAToolkit MPI)
  set(prefix ${package})
  if(package STREQUAL "CUDAToolkit")
    set(prefix CUDA)
  endif()
  if(linked MATCHES "(^|;|<LINK_ONLY:)${prefix}::")
    string(APPEND LOCKSTEP_FIND_DEPENDENCIES "find_dependency(${package})\n")
  endif()
endforeach()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/lockstepConfig.cmake.in
  ${PROJECT_BINARY_DIR}/lockstepConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
  DESTINATION ${package_folder})
