#include "text/json_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void json_text_string(const char *text, size_t n, StrBuf *out)
{
    static const char escaped[] = "\"\\\n\r\t\b\f", letter[] = "\"\\nrtbf";
    strbuf_putc(out, '"');
    for (size_t i = 0; i < n; i++) {
        const char *known = text[i] ? strchr(escaped, text[i]) : NULL;
        if (known)
            strbuf_printf(out, "\\%c", letter[known - escaped]);
        else if ((unsigned char)text[i] < 0x20)
            strbuf_printf(out, "\\u%04x", (unsigned)text[i]);
        else
            strbuf_putc(out, text[i]);
    }
    strbuf_putc(out, '"');
}

void json_text_real(double x, StrBuf *out)
{
    char digits[40];
    int precision = 0;
    do
        snprintf(digits, sizeof digits, "%.*e", precision, x);
    while (strtod(digits, NULL) != x && ++precision < 17);
    int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16) {
        strbuf_puts(out, digits);
        return;
    }
    int decimals = precision - exponent;
    strbuf_printf(out, "%.*f", decimals < 1 ? 1 : decimals, x);
}

static void new_line(int indent, int level, StrBuf *out)
{
    if (indent)
        strbuf_printf(out, "\n%*s", indent * level, "");
}

static void write_value(const json_t *value, int indent, int level, StrBuf *out);

static void write_array(const json_t *array, int indent, int level, StrBuf *out)
{
    strbuf_putc(out, '[');
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (i)
            strbuf_puts(out, indent ? "," : ", ");
        new_line(indent, level + 1, out);
        write_value(json_array_get(array, i), indent, level + 1, out);
    }
    if (json_array_size(array))
        new_line(indent, level, out);
    strbuf_putc(out, ']');
}

static void write_object(const json_t *object, int indent, int level, StrBuf *out)
{
    const char *key;
    json_t *value;
    bool first = true;
    strbuf_putc(out, '{');
    json_object_foreach((json_t *)object, key, value)
    {
        if (!first)
            strbuf_puts(out, indent ? "," : ", ");
        first = false;
        new_line(indent, level + 1, out);
        json_text_string(key, strlen(key), out);
        strbuf_puts(out, ": ");
        write_value(value, indent, level + 1, out);
    }
    if (!first)
        new_line(indent, level, out);
    strbuf_putc(out, '}');
}

static void write_value(const json_t *value, int indent, int level, StrBuf *out)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        write_object(value, indent, level, out);
        break;
    case JSON_ARRAY:
        write_array(value, indent, level, out);
        break;
    case JSON_STRING:
        json_text_string(json_string_value(value), json_string_length(value), out);
        break;
    case JSON_INTEGER:
        strbuf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        json_text_real(json_real_value(value), out);
        break;
    case JSON_TRUE:
        strbuf_puts(out, "true");
        break;
    case JSON_FALSE:
        strbuf_puts(out, "false");
        break;
    case JSON_NULL:
        strbuf_puts(out, "null");
        break;
    }
}

void json_text(const json_t *value, int indent, StrBuf *out)
{
    write_value(value, indent, 0, out);
}
