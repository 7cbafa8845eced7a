/*
 * What a compiler made of a module, read from its optimized program: a protocol buffer (xla/service/hlo.proto), of which
 * only this is looked at:
 *
 *     HloModuleProtoWithConfig  1: HloModuleProto  3: each HloComputationProto  2: each HloInstructionProto
 *         2: opcode, "all-reduce-start"        43: backend_config, JSON with "estimated_cycles":"9557"
 *         8: literal of a constant, 4: its numbers     38: of a loop, the ids (5) of its body and its condition
 */
#ifndef CVN_PJRT_OPTIMIZED_H
#define CVN_PJRT_OPTIMIZED_H

#include "run/backend.h"

/* Adds up cycles and collectives. False where the bytes are no such program. */
bool optimized_read(const void *bytes, size_t n, Compiled *out);

#endif
