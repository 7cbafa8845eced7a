# What Caravan is linked with, as one interface target, caravan_needs; the program
# has more needs of its own. Optional parts are used where
# they are found and announced to the sources as CVN_HAVE_NAME.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson>=2.10)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(EDIT IMPORTED_TARGET libedit)
pkg_check_modules(HWLOC IMPORTED_TARGET hwloc>=2.0)
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
pkg_check_modules(MPI IMPORTED_TARGET ompi-c)

add_library(caravan_needs INTERFACE)
target_link_libraries(caravan_needs INTERFACE m ${CMAKE_DL_LIBS} Threads::Threads PkgConfig::JANSSON PkgConfig::PCRE2)
set(CVN_PC_REQUIRES "jansson libpcre2-8")
if(HWLOC_FOUND)
  target_link_libraries(caravan_needs INTERFACE PkgConfig::HWLOC)
  target_compile_definitions(caravan_needs INTERFACE CVN_HAVE_HWLOC)
  string(APPEND CVN_PC_REQUIRES " hwloc")
endif()

# Line editing is for the program only.
add_library(caravan_cli_needs INTERFACE)
if(EDIT_FOUND)
  target_link_libraries(caravan_cli_needs INTERFACE PkgConfig::EDIT)
  target_compile_definitions(caravan_cli_needs INTERFACE CVN_HAVE_EDIT)
endif()

# Other matrix products, for the benches to compare with; never part of the program.
pkg_check_modules(OPENBLAS IMPORTED_TARGET openblas)
find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.h)
find_library(DNNL_LIBRARY dnnl)
if(DNNL_INCLUDE AND DNNL_LIBRARY)
  file(STRINGS "${DNNL_INCLUDE}/oneapi/dnnl/dnnl_version.h" version REGEX "define DNNL_VERSION_MAJOR 2")
  if(version)
    set(DNNL_FOUND ON)
  endif()
endif()
set(CVN_PEER_SOURCE_DNNL bench/peers/onednn.c)
set(CVN_PEER_LIBRARY_DNNL "${DNNL_LIBRARY}")
set(CVN_PEER_SOURCE_OPENBLAS bench/peers/openblas.c)
set(CVN_PEER_LIBRARY_OPENBLAS PkgConfig::OPENBLAS)
