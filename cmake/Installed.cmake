# The libraries that are installed: libcaravan.a and libcaravan.so. Of both the map says which names can be seen; in the
# shared one they have the version of the minor release, between which they may change before 1.0. The static one is a
# single object, so that its parts find each other by names that nobody else sees.
set(map "${CMAKE_BINARY_DIR}/exports.map")
configure_file(cmake/exports.map.in "${map}" @ONLY)
file(STRINGS "${map}" public REGEX "global:")
string(REGEX MATCH "cvn[a-z_*]+" public "${public}")

set(object "${CMAKE_BINARY_DIR}/caravan.o")
add_custom_command(OUTPUT "${object}"
  COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o "${object}" $<TARGET_OBJECTS:caravan_objects>
  COMMAND ${CMAKE_OBJCOPY} --wildcard "--keep-global-symbol=${public}" "${object}"
  DEPENDS caravan_objects $<TARGET_OBJECTS:caravan_objects> "${map}" COMMAND_EXPAND_LISTS VERBATIM
  COMMENT "One object with the public names")
add_library(caravan_static STATIC "${object}")
set_target_properties(caravan_static PROPERTIES OUTPUT_NAME caravan LINKER_LANGUAGE C)
target_include_directories(caravan_static PUBLIC include)
target_link_libraries(caravan_static PUBLIC caravan_needs)
set(CVN_LIBRARIES caravan_static)

if(CVN_SHARED AND NOT CVN_SANITIZE AND NOT CVN_TSAN AND NOT CVN_FUZZ)
  add_library(caravan_shared SHARED $<TARGET_OBJECTS:caravan_objects>)
  set_target_properties(caravan_shared PROPERTIES OUTPUT_NAME caravan
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS "${map}")
  target_link_options(caravan_shared PRIVATE "LINKER:--version-script=${map}")
  target_link_libraries(caravan_shared PRIVATE caravan_needs)
  list(APPEND CVN_LIBRARIES caravan_shared)
endif()
