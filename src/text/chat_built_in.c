/*
 * The chat templates that are built in, for models that come without one: which of them is a model's is found by the
 * special tokens of its tokenizer. They are Jinja like any other template (text/jinja/jinja.h), and where a published
 * template writes the same format they write what it writes, to the byte.
 *
 *     llama2       <s>[INST] <<SYS>>\nsystem\n<</SYS>>\n\nuser [/INST] assistant </s><s>[INST] user [/INST]
 *     llama3       <|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\ntext<|eot_id|>…
 *     llama3-meta  the same as Meta's own code writes it: messages as they are, not trimmed, and each encoded by itself
 *     llama3.1     the same with a system message that has dates, and with tools; of 3.1, 3.2 and 3.3
 *     r1           <BOS>system<｜User｜>text<｜Assistant｜>text<EOS>…<｜Assistant｜><think>\n
 *     r1-open      the same as the older template writes it, which leaves <think> to the model
 *     chatml       <|im_start|>user\ntext<|im_end|>\n
 *     mistral      <s>[SYSTEM_PROMPT]system[/SYSTEM_PROMPT][INST]user[/INST]assistant</s>; of tekken.json from version 7 on
 *
 * Llama 2's [INST] and <<SYS>> are ordinary text and not tokens, so a message that holds them is refused, as Meta's code
 * does. CUT is a byte that is not written: what stands before it and behind it is encoded by itself, as Meta's code does.
 *
 * Sources: meta-llama/llama llama/generation.py; meta-llama/llama-models models/llama3/chat_format.py and
 * models/llama3_*\/prompt_format.md; mistral-common tokens/tokenizers/instruct.py; the chat templates published with the models.
 */
#include "text/chat_template.h"

#define CUT "\036"

/* Programs of another language, which the formatter would tear apart. */
// clang-format off

/* Refuses a message of a role that is not in the list; `known` says it in words. */
#define CHECK_ROLE(list, known)                                                                    \
    "{%- if message.role not in [" list "] %}"                                                     \
    "{{ raise_exception('message ' ~ loop.index ~ ' has role \\'' ~ message.role ~ "               \
    "'\\'; this chat template knows " known "') }}"                                                \
    "{%- endif %}"

#define CHECK_SPEAKERS                                                                             \
    CHECK_ROLE("'system', 'user', 'assistant'", "system, user and assistant")
#define CHECK_ROLES                                                                                \
    CHECK_ROLE("'system', 'user', 'assistant', 'tool', 'ipython'",                                 \
               "system, user, assistant, tool and ipython")

/* Refuses tools where the format has no place for them. */
#define NO_TOOLS                                                                                   \
    "{%- if tools %}{{ raise_exception('this chat template has no tools; llama3.1 has') }}"        \
    "{%- endif %}"
#define NO_CALLS                                                                                   \
    "{%- if message.tool_calls %}{{ raise_exception('message ' ~ loop.index ~ "                    \
    "' calls a tool, and this chat template has none; llama3.1 has') }}{%- endif %}"

#define LLAMA2_TURNS                                                                               \
    "{{ raise_exception('the chat template llama2 needs user and assistant in turn, the user '"    \
    " ~ 'first and last, and a system message only at the beginning') }}"

static const char LLAMA2[] =
    NO_TOOLS
    "{%- set first = 1 if messages[0].role == 'system' else 0 %}"
    "{%- if messages | length == first %}" LLAMA2_TURNS "{%- endif %}"
    "{%- for message in messages %}" NO_CALLS
    "{%- set content = message.content or '' %}"
    "{%- set place = loop.index %}"
    "{%- set turn = loop.index0 - first %}"
    "{%- for tag in ([] if tags_as_text else ['[INST]', '[/INST]', '<<SYS>>', '<</SYS>>']) %}"
    "{%- if tag in content %}"
    "{{ raise_exception('message ' ~ place ~ ' holds [INST], [/INST], <<SYS>> or <</SYS>>, which "
    "Llama 2 would take for marks of its chat format; take them out') }}"
    "{%- endif %}{%- endfor %}"
    "{%- if turn >= 0 and message.role != ('assistant' if turn % 2 else 'user') %}" LLAMA2_TURNS
    "{%- endif %}"
    "{%- if turn == 0 and first %}"
    "{%- set content = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' + content %}"
    "{%- endif %}"
    "{%- if turn >= 0 and turn % 2 == 0 %}"
    "{{ bos_token + '" CUT "[INST] ' + content | trim + ' [/INST]' }}"
    "{%- elif turn >= 0 %}"
    "{{ ' ' + content | trim + ' ' + eos_token }}"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt and messages[-1].role != 'user' %}" LLAMA2_TURNS "{%- endif %}";

#define LLAMA3_HEADER(role) "'<|start_header_id|>' + " role " + '<|end_header_id|>\\n\\n'"
#define LLAMA3_ANSWER                                                                              \
    "{%- if add_generation_prompt %}{{ " LLAMA3_HEADER("'assistant'") " }}{%- endif %}"

static const char LLAMA3[] =
    NO_TOOLS
    "{{ bos_token }}"
    "{%- for message in messages %}" NO_CALLS CHECK_SPEAKERS
    "{{ " LLAMA3_HEADER("message.role") " + (message.content or '') | trim + '<|eot_id|>' }}"
    "{%- endfor %}" LLAMA3_ANSWER;

static const char LLAMA3_META[] =
    NO_TOOLS
    "{{ bos_token }}"
    "{%- for message in messages %}" NO_CALLS CHECK_ROLES
    "{%- set role = 'ipython' if message.role == 'tool' else message.role %}"
    "{{ " LLAMA3_HEADER("role") " + '" CUT "' + (message.content or '') + '<|eot_id|>' }}"
    "{%- endfor %}" LLAMA3_ANSWER;

#define HOW_TO_CALL                                                                                \
    "'Respond in the format {\"name\": function name, \"parameters\": dictionary of argument "     \
    "name and its value}.Do not use variables.\\n\\n'"
#define LIST_TOOLS                                                                                 \
    "{%- for tool in tools %}{{ tool | tojson(indent=4) + '\\n\\n' }}{%- endfor %}"

static const char LLAMA31[] =
    "{%- set in_user = tools and tools_in_user_message | default(true) %}"
    "{%- set system = (messages[0].content or '') | trim if messages[0].role == 'system' else '' %}"
    "{%- set rest = messages[1:] if messages[0].role == 'system' else messages %}"
    "{{ bos_token + " LLAMA3_HEADER("'system'") " }}"
    "{%- if tools %}{{ 'Environment: ipython\\n' }}{%- endif %}"
    "{{ 'Cutting Knowledge Date: December 2023\\nToday Date: ' + (date_string or '26 Jul 2024') "
    "+ '\\n\\n' }}"
    "{%- if tools and not in_user %}"
    "{{ 'You have access to the following functions. To call a function, please respond with JSON "
    "for a function call.' + " HOW_TO_CALL " }}" LIST_TOOLS "{%- endif %}"
    "{{ system + '<|eot_id|>' }}"
    "{%- if in_user %}"
    "{%- if not rest %}{{ raise_exception('tools go into the first user message, and there is "
    "none; add one') }}{%- endif %}"
    "{{ " LLAMA3_HEADER("'user'") " + 'Given the following functions, please respond with a JSON "
    "for a function call with its proper arguments that best answers the given prompt.\\n\\n' + "
    HOW_TO_CALL " }}" LIST_TOOLS
    "{{ (rest[0].content or '') | trim + '<|eot_id|>' }}"
    "{%- set rest = rest[1:] %}"
    "{%- endif %}"
    "{%- for message in rest %}"
    CHECK_ROLES
    "{%- if message.tool_calls and message.role != 'assistant' %}"
    "{{ raise_exception('a message of role \\'' ~ message.role ~ '\\' calls a tool; that is for "
    "the assistant') }}{%- endif %}"
    "{{ " LLAMA3_HEADER("('ipython' if message.role == 'tool' else message.role)") " }}"
    "{%- if message.tool_calls %}"
    "{%- if message.tool_calls | length != 1 %}{{ raise_exception('a message calls ' ~ "
    "message.tool_calls | length ~ ' tools; with this chat template it can call one') }}"
    "{%- endif %}"
    "{%- set call = message.tool_calls[0].function or message.tool_calls[0] %}"
    "{{ '{\"name\": \"' + call.name + '\", \"parameters\": ' + call.arguments | tojson + '}' }}"
    "{%- elif message.role in ['tool', 'ipython'] %}{{ message.content | tojson }}"
    "{%- else %}{{ (message.content or '') | trim }}{%- endif %}"
    "{{ '<|eot_id|>' }}"
    "{%- endfor %}" LLAMA3_ANSWER;

/* DeepSeek's markers have U+FF5C for bars. */
#define R1(begun)                                                                                  \
    NO_TOOLS                                                                                       \
    "{%- set found = namespace(system='') %}"                                                      \
    "{%- for message in messages %}" NO_CALLS CHECK_SPEAKERS                                       \
    "{%- if message.role == 'system' %}{%- set found.system = message.content %}{%- endif %}"      \
    "{%- endfor %}"                                                                                \
    "{{ bos_token + found.system }}"                                                               \
    "{%- for message in messages %}"                                                               \
    "{%- if message.role == 'user' %}{{ '<｜User｜>' + (message.content or '') }}"                 \
    "{%- elif message.role == 'assistant' %}"                                                      \
    "{{ '<｜Assistant｜>' + (message.content or '').split('</think>')[-1] + eos_token }}"          \
    "{%- endif %}{%- endfor %}"                                                                    \
    "{%- if add_generation_prompt %}{{ '<｜Assistant｜>" begun "' }}{%- endif %}"

static const char CHATML[] =
    "{%- for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}";

static const char MISTRAL[] =
    NO_TOOLS
    "{{ bos_token }}"
    "{%- for message in messages %}" NO_CALLS CHECK_SPEAKERS
    "{%- set content = message.content or '' %}"
    "{%- if message.role == 'system' %}{{ '[SYSTEM_PROMPT]' + content + '[/SYSTEM_PROMPT]' }}"
    "{%- elif message.role == 'user' %}{{ '[INST]' + content + '[/INST]' }}"
    "{%- else %}{{ content + eos_token }}{%- endif %}{%- endfor %}";

// clang-format on

/* Built-in templates. A tokenizer without a template gets the first row that is `found` and both of whose tokens it has. */
const ChatBuiltIn chat_built_in[] = {
    {"r1", {"<｜User｜>", "<｜Assistant｜>"}, true, R1("<think>\\n")},
    {"r1-open", {"<｜User｜>", "<｜Assistant｜>"}, false, R1("")},
    {"llama3", {"<|start_header_id|>", "<|eot_id|>"}, true, LLAMA3},
    {"llama3-meta", {"<|start_header_id|>", "<|eot_id|>"}, false, LLAMA3_META},
    {"llama3.1", {"<|start_header_id|>", "<|eot_id|>"}, false, LLAMA31},
    {"chatml", {"<|im_start|>", "<|im_end|>"}, true, CHATML},
    {"mistral", {"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"}, true, MISTRAL},
    {"llama2", {"<s>", "</s>"}, true, LLAMA2},
    {0},
};
