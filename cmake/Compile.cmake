# Flags of every source. No fused multiply-adds by the compiler's own choice: a result must not depend
# on what was inlined where; kernels that want them say fma.
add_compile_definitions(_GNU_SOURCE)
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wvla -Wwrite-strings -Wundef
  -Wpointer-arith -Wformat=2 -fno-common -ffp-contract=off -fno-math-errno)
# Messages have a fixed size and are cut on purpose; assert(!"text") is an idiom.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-format-truncation)
elseif(CMAKE_C_COMPILER_ID MATCHES "Clang")
  add_compile_options(-Wno-string-conversion)
endif()
# assert and error messages name files relative to the source tree, whoever builds it and where.
add_compile_options(-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(CVN_DEVELOPER)
  add_compile_options(-Werror)
endif()

if(CVN_SANITIZE AND CVN_TSAN)
  message(FATAL_ERROR "CVN_SANITIZE and CVN_TSAN exclude each other; build them in two folders")
endif()
if(CVN_SANITIZE OR CVN_FUZZ)
  # The instrumented code makes gcc see uninitialised and overrun variables that are none.
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds)
  endif()
  # -g1: lines for reports are enough, in half the bytes to write and link. Arithmetic on pointers is checked where bytes of
  # strangers move them (CVN_READERS): elsewhere AddressSanitizer sees what a wrong pointer reads.
  add_compile_options(-O1 -g1 -fsanitize=address,undefined -fno-sanitize=pointer-overflow -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
if(CVN_TSAN)
  add_compile_options(-O1 -fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
endif()
if(CVN_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "CVN_FUZZ needs clang: configure with -DCMAKE_C_COMPILER=clang")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
