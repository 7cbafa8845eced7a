# bench/amx_model: kernels of AMX compiled to assembly, to which calls of a model of the processor are added.
# Their definitions come first; those of the library, under the same names, are not taken.
if(NOT CVN_COMPILES_AMX OR NOT CMAKE_C_COMPILER_ID STREQUAL "GNU" OR CVN_SANITIZE OR CVN_TSAN OR CVN_FUZZ)
  return()
endif()
find_program(CVN_AWK NAMES mawk gawk awk)
if(NOT CVN_AWK)
  return()
endif()
enable_language(ASM)
set(model "${CMAKE_SOURCE_DIR}/bench/amx_model")
set(kernels "${CMAKE_SOURCE_DIR}/src/cpu/kernels")
file(GLOB modelled CONFIGURE_DEPENDS ${kernels}/amx/*.c ${kernels}/gemm*.c ${kernels}/linear*.c
  ${kernels}/avx512/gemm*.c ${kernels}/avx512/linear*.c)
set(options -std=gnu17 -D_GNU_SOURCE -DCVN_HAVE_AVX2 -DCVN_HAVE_AVX512 -DCVN_HAVE_AMX -I${CMAKE_SOURCE_DIR}/src
  -I${CMAKE_SOURCE_DIR}/include -O3 -ffp-contract=off -fno-math-errno -fno-pic -mno-red-zone
  -fno-asynchronous-unwind-tables)
set(objects)
foreach(source ${modelled})
  file(RELATIVE_PATH name ${kernels} ${source})
  string(REPLACE "/" "_" name ${name})
  set(flags ${options})
  foreach(isa avx512 amx)
    if(source MATCHES "/kernels/${isa}/")
      list(APPEND flags ${CVN_ISA_FLAGS_${isa}})
    endif()
  endforeach()
  set(made "${CMAKE_BINARY_DIR}/modelled/${name}")
  add_custom_command(OUTPUT "${made}.s"
    COMMAND ${CMAKE_COMMAND} -E make_directory "${CMAKE_BINARY_DIR}/modelled"
    COMMAND ${CMAKE_C_COMPILER} ${flags} -MD -MF "${made}.d" -MT "modelled/${name}.s" -S "${source}" -o "${made}.plain"
    COMMAND ${CVN_AWK} -f "${model}/instrument.awk" "${made}.plain" > "${made}.s"
    DEPENDS "${source}" "${model}/instrument.awk" DEPFILE "${made}.d" VERBATIM)
  list(APPEND objects "${made}.s")
endforeach()
add_executable(amx_model EXCLUDE_FROM_ALL bench/amx_model.c ${model}/model.c ${objects})
set_source_files_properties(${model}/model.c PROPERTIES COMPILE_OPTIONS
  "-O2;-mgeneral-regs-only;-fno-pic")
target_include_directories(amx_model PRIVATE src bench)
target_link_options(amx_model PRIVATE -no-pie -Wl,--allow-multiple-definition)
target_link_libraries(amx_model PRIVATE caravan_core)
add_dependencies(benches amx_model)
