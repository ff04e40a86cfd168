# Targets: towpath::towpath (shared library), towpath::static; for programs of Active Messages II towpath::am and towpath::am-static.
get_filename_component(_towpath_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(towpath_INCLUDE_DIR "${_towpath_prefix}/include")
if(NOT TARGET towpath::towpath)
  add_library(towpath::towpath SHARED IMPORTED)
  set_target_properties(towpath::towpath PROPERTIES
    IMPORTED_LOCATION "${_towpath_prefix}/lib/libtowpath.so"
    IMPORTED_SONAME "libtowpath.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${towpath_INCLUDE_DIR}")
  add_library(towpath::static STATIC IMPORTED)
  set_target_properties(towpath::static PROPERTIES
    IMPORTED_LOCATION "${_towpath_prefix}/lib/libtowpath.a"
    INTERFACE_LINK_LIBRARIES "gcc_s;pthread;m;dl;rt"
    INTERFACE_INCLUDE_DIRECTORIES "${towpath_INCLUDE_DIR}")
  add_library(towpath::am SHARED IMPORTED)
  set_target_properties(towpath::am PROPERTIES
    IMPORTED_LOCATION "${_towpath_prefix}/lib/libtowpath-am.so"
    IMPORTED_SONAME "libtowpath-am.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${towpath_INCLUDE_DIR}/towpath-am")
  add_library(towpath::am-static STATIC IMPORTED)
  set_target_properties(towpath::am-static PROPERTIES
    IMPORTED_LOCATION "${_towpath_prefix}/lib/libtowpath-am.a"
    INTERFACE_LINK_LIBRARIES "gcc_s;pthread;m;dl;rt"
    INTERFACE_INCLUDE_DIRECTORIES "${towpath_INCLUDE_DIR}/towpath-am")
endif()
unset(_towpath_prefix)
