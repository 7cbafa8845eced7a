/*
 * The text model in the files of a model that sees or hears: its tensors are told from the others by their names, of which there are
 * two forms, by what version of transformers wrote the files:
 *
 *     language_model.model.layers.0.…      language_model.lm_head.weight      vision_tower.…    multi_modal_projector.…
 *     model.language_model.layers.0.…      lm_head.weight                     model.vision_tower.…    model.embed_vision.…
 *
 * Either is model.layers.0.… and lm_head.weight where the text model stands alone.
 */
#ifndef CVN_IO_TOWERS_H
#define CVN_IO_TOWERS_H

#include "io/tensor.h"
#include "model/model.h"

/* Refuses a model inside of another, unless text is all that is asked for; `path` is for messages. */
int towers_check(const Model *model, bool text_only, const char *path, cvn_err *err);

/* Leaves the tensors of the text model in the list, by the names that they have alone; the model's warnings say what is left out. */
int towers_leave_out(IoTensors *list, Model *model, const char *path, cvn_err *err);

#endif
