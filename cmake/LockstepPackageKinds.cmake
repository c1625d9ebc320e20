# Read by cpack before it makes a package of one kind: the .tar.gz alone brings libraries along, and a folder
# around everything.
if(CPACK_GENERATOR STREQUAL "TGZ")
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
else()
  list(REMOVE_ITEM CPACK_COMPONENTS_ALL bundle)
endif()
