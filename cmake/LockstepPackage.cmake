# Makes `cpack` pack a build as a .deb, whose libraries are dependencies that dpkg-shlibdeps finds, and as a .tar.gz
# that contains libfmt, libcrypto and libz and so runs wherever glibc and libstdc++ are as new as where it was built.
# scripts/package.sh makes both from the preset `package`, whose CPU kernels run on any machine of the architecture.

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

set(doc_folder ${CMAKE_INSTALL_DATAROOTDIR}/doc/lockstep)
install(FILES README.md DESTINATION ${doc_folder} COMPONENT program)
install(FILES LICENSE DESTINATION ${doc_folder} RENAME copyright COMPONENT program)
# Pages of the labs, whose sources are in share/lockstep/labs without solutions; no fixes of the bug programs.
# The book, where scripts/book.sh has built it, without the spoilers of the bug lab.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/build/book DESTINATION ${doc_folder} COMPONENT program OPTIONAL
  PATTERN spoilers EXCLUDE)
install(DIRECTORY tutorials DESTINATION ${doc_folder} COMPONENT tutorials
  FILES_MATCHING PATTERN "*.cpp" PATTERN "*.h" PATTERN "*.md"
  REGEX "/tutorials/labs/.*[.](cpp|h)$" EXCLUDE REGEX "/tutorials/labs/(judging|host)$" EXCLUDE
  REGEX "/tutorials/bugs/spoilers$" EXCLUDE)

# The component bundle, for the .tar.gz only.
install(RUNTIME_DEPENDENCY_SET linked_libraries
  PRE_INCLUDE_REGEXES "^lib(fmt|crypto|z)[.]so" PRE_EXCLUDE_REGEXES "."
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep COMPONENT bundle EXCLUDE_FROM_ALL)
foreach(debian_package libfmt9 libssl3 libssl3t64 zlib1g)
  install(FILES /usr/share/doc/${debian_package}/copyright DESTINATION ${doc_folder}/licences
    RENAME ${debian_package} COMPONENT bundle EXCLUDE_FROM_ALL OPTIONAL)
endforeach()
# Chart.js is embedded in the program, so both packages hold it.
install(FILES /usr/share/doc/libjs-chart.js/copyright DESTINATION ${doc_folder}/licences
  RENAME libjs-chart.js COMPONENT program OPTIONAL)

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VENDOR "Lockstep contributors")
set(CPACK_PACKAGE_CONTACT "Lockstep contributors <lockstep@localhost>")
set(CPACK_PACKAGE_FILE_NAME lockstep-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_COMPONENTS_ALL program tutorials development bundle)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/LockstepPackageKinds.cmake)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Packages with which users build their own programs.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "g++ (>= 4:12) | clang-16, bubblewrap, cmake, ninja-build, libfmt-dev, zlib1g-dev")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "training engine to understand and measure data-parallel training")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
  "The program lockstep, its tutorials, and the library with its headers,\nfor the CPU.")
include(CPack)
