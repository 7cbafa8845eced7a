/*
 * A file written by torch.save (version 1.6 or later) that holds a dictionary of tensors: a zip
 * archive
 *
 *   NAME/data.pkl       the dictionary as a pickle; a tensor is "_rebuild_tensor_v2(storage, offset
 * in elements, sizes, strides, …)", a storage a persistent id ("storage", type, key, device,
 * elements) NAME/data/KEY       the bytes of each storage, uncompressed, so that they are used in
 * place NAME/byteorder      "little", where present
 *
 * Only contiguous (row-major) tensors are read.
 */
#ifndef CVN_IO_TORCH_FILE_H
#define CVN_IO_TORCH_FILE_H

#include "io/tensor.h"

/* Adds the tensors of a file image; they point into data. */
int torch_read(IoTensors *list, const char *file, const uint8_t *data, size_t size, cvn_err *err);

#endif
