# What Caravan is linked with, as one interface target, caravan_needs; the program
# has more needs of its own. Optional parts are used where
# they are found and announced to the sources as CVN_HAVE_NAME.
find_package(Threads REQUIRED)
find_package(PkgConfig)
if(NOT PKG_CONFIG_FOUND)
  message(FATAL_ERROR "Caravan's build asks pkg-config for its libraries, which is missing: on Debian and Ubuntu "
    "apt-get install pkg-config.")
endif()

# cvn_need(PREFIX MODULE PACKAGE): what there is no build without, by the name that Debian and Ubuntu give it.
function(cvn_need prefix module package)
  pkg_check_modules(${prefix} QUIET IMPORTED_TARGET GLOBAL ${module})
  if(NOT ${prefix}_FOUND)
    message(FATAL_ERROR "Caravan needs ${module}, which pkg-config does not find: on Debian and Ubuntu "
      "apt-get install ${package} (or `make setup`); where it is installed elsewhere, name the folder of its .pc file "
      "in PKG_CONFIG_PATH.")
  endif()
endfunction()
cvn_need(JANSSON jansson>=2.10 libjansson-dev)
cvn_need(PCRE2 libpcre2-8 libpcre2-dev)
cvn_need(UTF8PROC libutf8proc libutf8proc-dev)
cvn_need(NETTLE nettle nettle-dev)
# A definition for Windows, which would be on every command line.
set_target_properties(PkgConfig::UTF8PROC PROPERTIES INTERFACE_COMPILE_OPTIONS "")

# cvn_may(PREFIX MODULE): what is used where it is found, unless -DCVN_WITH_PREFIX=OFF.
macro(cvn_may prefix module)
  option(CVN_WITH_${prefix} "Use ${module} where it is found" ON)
  if(CVN_WITH_${prefix})
    pkg_check_modules(${prefix} QUIET IMPORTED_TARGET ${module})
  else()
    unset(${prefix}_FOUND CACHE)
  endif()
endmacro()
cvn_may(EDIT libedit)
cvn_may(HWLOC hwloc>=2.0)
cvn_may(CMOCKA cmocka)
cvn_may(MPI ompi-c)
cvn_may(MICROHTTPD libmicrohttpd>=0.9.71)

add_library(caravan_needs INTERFACE)
target_link_libraries(caravan_needs INTERFACE m ${CMAKE_DL_LIBS} Threads::Threads PkgConfig::JANSSON PkgConfig::PCRE2
  PkgConfig::UTF8PROC PkgConfig::NETTLE)
set(CVN_PC_REQUIRES "jansson libpcre2-8 libutf8proc nettle")
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
