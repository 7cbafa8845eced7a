# Tests and the program once more, as they are on a machine with AMX: what believes in one, and carries its instructions
# out where there is none (tests/amx_trap.h). A few always, all with CVN_TRAPPED (tools/amx_trapped.sh). Sanitizers see the
# kernels of AMX in test_kernels_amx*, which are slow enough there.
if(NOT amx IN_LIST CVN_ISAS)
  return()
endif()

add_library(amx_trap_objects OBJECT tests/amx_trap.c tests/amx_trap_cpu.c)
target_include_directories(amx_trap_objects PRIVATE src include)
add_library(amx_trap INTERFACE)
target_sources(amx_trap INTERFACE $<TARGET_OBJECTS:amx_trap_objects>)
target_link_options(amx_trap INTERFACE
  "LINKER:--wrap=cpu_features,--wrap=cpu_request_amx,--wrap=peak_run")

if(TARGET caravan)
  add_executable(caravan_trapped EXCLUDE_FROM_ALL $<TARGET_OBJECTS:caravan>)
  target_link_libraries(caravan_trapped PRIVATE caravan_server caravan_core caravan_cli_needs amx_trap)
endif()

set(CVN_TESTS_TRAPPED test_kernels_dot test_kernels_linear test_kernels_linear_int8 test_kernels_llama test_engine
  test_fuse test_grad_llama test_lora_train)
foreach(source ${CVN_TESTS})
  get_filename_component(name ${source} NAME_WE)
  # test_cpu holds what is said of the processor to what it has; tests of kernels of AMX always are of this kind.
  if((CVN_TRAPPED OR (name IN_LIST CVN_TESTS_TRAPPED AND NOT CVN_SANITIZE AND NOT CVN_TSAN)) AND NOT name MATCHES "test_cpu$|_amx")
    cvn_test(${source} _trapped)
  endif()
endforeach()
