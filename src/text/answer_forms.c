/* The forms of answers, most particular first: a template that has one form's sign may have another's in what it says of it. */
#include "text/answer_forms.h"

#include <string.h>

const AnswerForm answer_forms[] = {
    /* OpenAI's Harmony: each part has a header, <|channel|>analysis<|message|>; calls are told by their recipient */
    {.name = "harmony",
     .sign = "<|channel|>analysis",
     .open = "<|channel|>analysis<|message|>",
     .close = "<|end|>",
     .header = "<|start|>assistant",
     .header_end = "<|message|>",
     .thinks = "analysis",
     .calls = "to=functions."},
    {.name = "recipients",
     .sign = " to=self<|message|>",
     .open = " to=self<|message|>",
     .close = "<|eom|>",
     .header = "<|start|>assistant",
     .header_end = "<|message|>",
     .thinks = "to=self"},
    {.name = "mistral", .sign = "[/THINK]", .open = "[THINK]", .close = "[/THINK]"},
    {.name = "gemma", .sign = "<channel|>", .open = "<|channel>thought\n", .close = "<channel|>"},
    {.name = "cohere",
     .sign = "<|END_THINKING|>",
     .open = "<|START_THINKING|>",
     .close = "<|END_THINKING|>",
     .silent = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}},
    {.name = "kimi-k3",
     .sign = "<|close|>response<|sep|>",
     .open = "<|open|>think<|sep|>",
     .close = "<|close|>think<|sep|>",
     .silent = {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"}},
    {.name = "apertus",
     .sign = "<|inner_suffix|>",
     .open = "<|inner_prefix|>",
     .close = "<|inner_suffix|>"},
    {.name = "apriel",
     .sign = "[BEGIN FINAL RESPONSE]",
     .open = "Here are my reasoning steps:\n",
     .close = "[BEGIN FINAL RESPONSE]"},
    {.name = "seed", .sign = "</seed:think>", .open = "<seed:think>", .close = "</seed:think>"},
    {.name = "minimax", .sign = "</mm:think>", .open = "<mm:think>", .close = "</mm:think>"},
    {.name = "hunyuan",
     .sign = ":opensource",
     .open = "<think:opensource>",
     .close = "</think:opensource>"},
    {.name = "granite",
     .sign = "<response></response>",
     .open = "<think>",
     .close = "</think>",
     .silent = {"<response>", "</response>"}},
    {.name = "think", .sign = "</think>", .open = "<think>", .close = "</think>"},
    {.name = "thinking", .sign = "</thinking>", .open = "<thinking>", .close = "</thinking>"},
    {.name = "thought", .sign = "</thought>", .open = "<thought>", .close = "</thought>"},
    {0},
};

const AnswerForm *answer_form_find(const char *source)
{
    const AnswerForm *form = answer_forms;
    while (form->name && !strstr(source, form->sign))
        form++;
    return form->name ? form : NULL;
}
