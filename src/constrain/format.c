/*
 * The formats of JSON Schema as regular languages, each from the grammar of its document: RFC 3339 for dates and times,
 * its appendix A for durations, RFC 5321 for mailboxes, RFC 3986 and 3987 for URIs and IRIs, RFC 6570 for templates,
 * RFC 6901 for pointers, RFC 4122 for UUIDs. They are written as those grammars are, as rules that name each other:
 *
 *     ipv4 = <octet>(\.<octet>){3}
 *
 * What is no such language is told by functions (labels of host names that are encoded, idna.h) or refused: regular expressions nest.
 */
#include "base/strbuf.h"
#include "constrain/idna.h"
#include "constrain/pattern.h"
#include "constrain/schema.h"

#include <stdio.h>
#include <string.h>

typedef struct Rule {
    const char *name, *pattern;
} Rule;

/* A rule names only those before it. In <ucs> and <private> is what IRIs have besides. */
static const Rule rules[] = {
    {"ucs", "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{1fffd}\\u{20000}-\\u{"
            "2fffd}\\u{30000}-\\u{3fffd}\\u{40000}-\\u{4fffd}"
            "\\u{50000}-\\u{5fffd}\\u{60000}-\\u{6fffd}\\u{70000}-\\u{7fffd}\\u{80000}-\\u{8fffd}"
            "\\u{90000}-\\u{9fffd}\\u{a0000}-\\u{afffd}"
            "\\u{b0000}-\\u{bfffd}\\u{c0000}-\\u{cfffd}\\u{d0000}-\\u{dfffd}\\u{e1000}-\\u{efffd}"},
    {"private", "\\ue000-\\uf8ff\\u{f0000}-\\u{ffffd}\\u{100000}-\\u{10fffd}"},
    {"leap", "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"},
    {"date", "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|"
             "30)|02-(0[1-9]|1[0-9]|2[0-8]))|<leap>-02-29)"},
    {"fraction", "(\\.[0-9]+)?"},
    {"time",
     "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]<fraction>([zZ]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"},
    {"clock", "(T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))"},
    {"duration",
     "P([0-9]+W|([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)<clock>?|<clock>)"},
    {"octet", "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"},
    {"ipv4", "(<octet>(\\.<octet>){3})"},
    {"h", "[0-9A-Fa-f]{1,4}"},
    {"ls", "(<h>:<h>|<ipv4>)"},
    {"ipv6", "((<h>:){6}<ls>|::(<h>:){5}<ls>|(<h>)?::(<h>:){4}<ls>|((<h>:){0,1}<h>)?::(<h>:){3}<ls>"
             "|((<h>:){0,2}<h>)?::(<h>:){2}<ls>|"
             "((<h>:){0,3}<h>)?::<h>:<ls>|((<h>:){0,4}<h>)?::<ls>|((<h>:){0,5}<h>)?::<h>|((<h>:){0,"
             "6}<h>)?::)"},
    {"pct", "%[0-9A-Fa-f]{2}"},
    {"sub", "A-Za-z0-9._~!$&'()*+,;="},
    {"pchar", "([<sub><ucs>:@-]|<pct>)"},
    {"host", "(\\[(<ipv6>|[vV][0-9A-Fa-f]+\\.[<sub>:-]+)\\]|([<sub><ucs>-]|<pct>)*)"},
    {"authority", "//(([<sub><ucs>:-]|<pct>)*@)?<host>(:[0-9]*)?"},
    {"segments", "(/<pchar>*)*"},
    {"tail", "(\\?([<sub><ucs><private>:@/?-]|<pct>)*)?(#([<sub><ucs>:@/?-]|<pct>)*)?"},
    {"uri", "([A-Za-z][A-Za-z0-9+.-]*:(<authority><segments>|/"
            "(<pchar>+<segments>)?|(<pchar>+<segments>)?)<tail>)"},
    {"uri-reference", "(<uri>|(<authority><segments>|/"
                      "(<pchar>+<segments>)?|(([<sub><ucs>@-]|<pct>)+<segments>)?)<tail>)"},
    {"iri", "<uri>"},
    {"iri-reference", "<uri-reference>"},
    {"variable", "([A-Za-z0-9_]|<pct>)(\\.?([A-Za-z0-9_]|<pct>))*(:[1-9][0-9]{0,3}|\\*)?"},
    {"uri-template",
     "([!#$&-;=?-\\[\\]_a-z~<ucs><private>]|<pct>|\\{[+#./;?&=,!@|]?<variable>(,<variable>)*\\})*"},
    {"atext", "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"},
    {"label", "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"},
    {"email", "(<atext>(\\.<atext>)*|\"([ !#-\\[\\]-~]|\\\\[ "
              "-~])*\")@(<label>(\\.<label>)*|\\[(<ipv4>|IPv6:<ipv6>)\\])"},
    {"wide", "\\u0080-\\u{10ffff}"},
    {"wide-atext", "[A-Za-z0-9!#$%&'*+/=?^_`{|}~<wide>-]+"},
    {"wide-label", "[A-Za-z0-9<wide>]([A-Za-z0-9<wide>-]*[A-Za-z0-9<wide>])?"},
    {"idn-email", "(<wide-atext>(\\.<wide-atext>)*|\"([ !#-\\[\\]-~<wide>]|\\\\[ "
                  "-~])*\")@(<wide-label>(\\.<wide-label>)*|\\[(<ipv4>|IPv6:<ipv6>)\\])"},
    {"json-pointer", "(/([^~/]|~[01])*)*"},
    {"relative-json-pointer", "(0|[1-9][0-9]*)(#|<json-pointer>)"},
    {"base64", "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"},
    {"uuid", "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"},
};

/* Formats whose names are rules, and formats that are refused. */
static const char *const known[] = {
    "date", "duration",      "email",         "idn-email",    "ipv4",
    "ipv6", "iri",           "iri-reference", "json-pointer", "relative-json-pointer",
    "uri",  "uri-reference", "uri-template",  "uuid"};

/* Appends a pattern with what its rules stand for. */
static void expand(const char *pattern, size_t n_rules, bool international, StrBuf *out)
{
    for (const char *at = pattern; *at; at++) {
        if (*at != '<') {
            strbuf_putc(out, *at);
            continue;
        }
        size_t n = strcspn(++at, ">");
        bool wide =
            (n == 3 && memcmp(at, "ucs", n) == 0) || (n == 7 && memcmp(at, "private", n) == 0);
        for (size_t i = 0; i < n_rules && (international || !wide); i++)
            if (strlen(rules[i].name) == n && memcmp(rules[i].name, at, n) == 0)
                expand(rules[i].pattern, i, international, out);
        at += n;
    }
}

static Term term_of(TermTable *terms, const char *pattern, bool international)
{
    StrBuf text = {0};
    Term term = TERM_NONE;
    expand(pattern, sizeof rules / sizeof *rules, international, &text);
    if (text.failed || pattern_term(terms, text.text, text.length, true, &term, NULL))
        terms->failed = terms->failed ? terms->failed : "no memory for a format";
    strbuf_free(&text);
    return term;
}

/* Texts "HH:MM:60.123+hh:mm" in which two numbers are given, the others any: -1. */
static Term clock_text(TermTable *terms, Term fraction, int hour, int minute, char sign,
                       int off_hour, int off_minute)
{
    Term digit = term_range(terms, '0', '9'), two = term_cat(terms, digit, digit), part[4];
    int number[4] = {hour, minute, off_hour, off_minute};
    for (int i = 0; i < 4; i++) {
        char text[3] = {(char)('0' + number[i] / 10), (char)('0' + number[i] % 10), 0};
        part[i] = number[i] < 0 ? two : term_text(terms, text, 2);
    }
    Term colon = term_text(terms, ":", 1),
         term = term_cat(terms, part[2], term_cat(terms, colon, part[3]));
    term = term_cat(terms, fraction, term_cat(terms, term_text(terms, &sign, 1), term));
    term = term_cat(terms, part[1], term_cat(terms, term_text(terms, ":60", 3), term));
    return term_cat(terms, part[0], term_cat(terms, colon, term));
}

/* Leap seconds come at 23:59:60 of UTC, so a local time HH:MM has the offset -(23 - HH):(59 - MM), or +HH:(MM + 1), with a
   carry for MM = 59: relations between the hours, and between the minutes, that hold together. */
static Term leap_seconds(TermTable *terms)
{
    Term fraction = term_of(terms, "<fraction>", false), behind[2] = {0}, ahead[2] = {0};
    Term any = term_of(terms, "23:59:60<fraction>[zZ]", false);
    for (int h = 0; h < 24; h++) {
        behind[0] = term_or2(terms, behind[0], clock_text(terms, fraction, h, -1, '-', 23 - h, -1));
        ahead[0] = term_or2(terms, ahead[0], clock_text(terms, fraction, h, -1, '+', h, -1));
        any = term_or2(terms, any, clock_text(terms, fraction, h, 59, '+', (h + 1) % 24, 0));
    }
    for (int m = 0; m < 60; m++) {
        behind[1] = term_or2(terms, behind[1], clock_text(terms, fraction, -1, m, '-', -1, 59 - m));
        if (m < 59)
            ahead[1] =
                term_or2(terms, ahead[1], clock_text(terms, fraction, -1, m, '+', -1, m + 1));
    }
    return term_or(terms, (Term[]){any, term_and(terms, behind, 2), term_and(terms, ahead, 2)}, 3);
}

static Term at_most(TermTable *terms, uint32_t characters)
{
    return term_rep(terms, term_any_character(terms), 1, characters);
}

/* RFC 1123 and, from draft 7 on, RFC 5890: labels that begin with "xn--" stand for others, and in international names these stand
   themselves. Names keep to one direction, or all of their labels keep the rule for both. */
static Term host_names(TermTable *terms, bool encoded, bool international)
{
    static const uint32_t dots[] = {'.', '.', 0x3002, 0x3002, 0xff0e, 0xff0e, 0xff61, 0xff61};
    Term dot = term_points(terms, dots, international ? 4 : 1), name[2];
    for (int d = IDNA_LEFT_TO_RIGHT; d <= IDNA_BOTH; d++) {
        Term kept = term_of(terms, international ? "..--.*" : "[Xx][Nn]--.*", false),
             ldh = term_of(
                 terms, d == IDNA_BOTH ? "[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?" : "<label>", false);
        Term label = term_and2(terms, ldh, at_most(terms, 63));
        if (encoded || international)
            label = term_or2(terms, term_and2(terms, label, term_not(terms, kept)),
                             term_language(terms, &idna_a_label[d]));
        if (international)
            label = term_or2(terms, label, term_language(terms, &idna_u_label[d]));
        name[d] =
            term_cat(terms, label, term_rep(terms, term_cat(terms, dot, label), 0, TERM_MANY));
    }
    return term_and2(terms, term_or(terms, name, encoded || international ? 2 : 1),
                     at_most(terms, 253));
}

Term format_base64(TermTable *terms)
{
    return term_of(terms, "<base64>", false);
}

int format_term(TermTable *terms, const JsonValue *name, SchemaDraft draft, Term *out)
{
    bool time = json_is(name, "time");
    if (time || json_is(name, "date-time")) {
        Term times = term_or2(terms, term_of(terms, "<time>", false), leap_seconds(terms));
        *out = time ? times : term_cat(terms, term_of(terms, "<date>[tT]", false), times);
        return 1;
    }
    if (json_is(name, "regex"))
        return -1;
    bool international = json_is(name, "idn-hostname");
    if (international || json_is(name, "hostname")) {
        *out = host_names(terms, draft >= DRAFT_7, international);
        return 1;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char rule[40];
        if (!json_is(name, known[i]))
            continue;
        snprintf(rule, sizeof rule, "<%s>", known[i]);
        *out = term_of(terms, rule,
                       strncmp(known[i], "uri", 3) != 0 || strcmp(known[i], "uri-template") == 0);
        return 1;
    }
    return 0;
}
