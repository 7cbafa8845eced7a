# Kernels for one instruction set live in src/cpu/kernels/SET/ and are compiled with its flags, and
# only there: which of them run is decided at run time by base/cpu.h. A set that the processor or
# the compiler does not know is left out; the others see CVN_HAVE_SET (CVN_HAVE_AVX512, …).
include(CheckCSourceCompiles)

set(CVN_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(CVN_ISA_FLAGS_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mavx512vnni
  -mfma -mf16c)
set(CVN_ISA_FLAGS_amx ${CVN_ISA_FLAGS_avx512} -mamx-tile -mamx-bf16 -mamx-int8)
set(CVN_ISA_PROCESSOR_avx2 "^(x86_64|AMD64|amd64)$")
set(CVN_ISA_PROCESSOR_avx512 "${CVN_ISA_PROCESSOR_avx2}")
set(CVN_ISA_PROCESSOR_amx "${CVN_ISA_PROCESSOR_avx2}")

set(CVN_ISAS)
foreach(isa avx2 avx512 amx)
  string(TOUPPER ${isa} ISA)
  set(known OFF)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "${CVN_ISA_PROCESSOR_${isa}}")
    string(REPLACE ";" " " CMAKE_REQUIRED_FLAGS "${CVN_ISA_FLAGS_${isa}}")
    check_c_source_compiles("int main(void) { return 0; }" CVN_COMPILES_${ISA})
    unset(CMAKE_REQUIRED_FLAGS)
    set(known ${CVN_COMPILES_${ISA}})
  endif()
  if(known)
    list(APPEND CVN_ISAS ${isa})
    add_compile_definitions(CVN_HAVE_${ISA})
  else()
    list(FILTER CVN_SOURCES EXCLUDE REGEX "/src/cpu/kernels/${isa}/")
  endif()
endforeach()

foreach(source ${CVN_SOURCES})
  if(source MATCHES "/src/cpu/kernels/|/src/cpu/ceilings.c|/src/comm/fold.c")
    set(flags)
    if(NOT CVN_SANITIZE AND NOT CVN_TSAN AND NOT CVN_FUZZ)
      list(APPEND flags -O3)
    elseif(NOT CVN_FUZZ)
      list(APPEND flags -O2) # accumulators in registers: at -O1 each of their loads and stores is checked
    else()
      list(APPEND flags -fno-sanitize=all) # what is fuzzed reads files; instrumented, these take most of the build
    endif()
    foreach(isa ${CVN_ISAS})
      if(source MATCHES "/src/cpu/kernels/${isa}/")
        list(APPEND flags ${CVN_ISA_FLAGS_${isa}})
      endif()
    endforeach()
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${flags}")
  elseif(source MATCHES "/src/io/convert.c" AND NOT CVN_SANITIZE AND NOT CVN_TSAN AND NOT CVN_FUZZ)
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS -O3) # every weight goes through its loops
  endif()
endforeach()
