/*
 * The page at /, compiled in as it lies in src/server/page/: a program that is copied elsewhere has it with it. The assembler
 * reads the files; CMakeLists.txt says where they are.
 */
#include "server/routes.h"

#define PAGE_FILE(kind, file)                                                                      \
    __asm__(".pushsection .rodata\n"                                                               \
            ".global page_" #kind "\npage_" #kind ":\n"                                            \
            ".incbin \"" CVN_PAGE "/" file "\"\n"                                                  \
            ".global page_" #kind "_end\npage_" #kind "_end:\n"                                    \
            ".byte 0\n.popsection\n")

PAGE_FILE(html, "index.html");
PAGE_FILE(css, "page.css");
PAGE_FILE(js, "page.js");
