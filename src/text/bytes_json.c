#include "text/bytes_json.h"

#include "base/err.h"
#include "base/strbuf.h"
#include "text/utf8.h"

json_t *bytes_json(const char *text, size_t n)
{
    SCOPED(strbuf_free) StrBuf valid = {0};
    for (size_t i = 0; i < n;) {
        int length = utf8_length(text + i, n - i);
        strbuf_add(&valid, length ? text + i : "\xef\xbf\xbd", length ? (size_t)length : 3);
        i += length ? (size_t)length : 1;
    }
    json_t *json = valid.failed ? NULL : json_stringn(valid.text ? valid.text : "", valid.length);
    return json;
}
