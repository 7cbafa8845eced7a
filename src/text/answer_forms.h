/* The forms that answers have: by what marks thoughts, and what is said, are told apart (answer.h). */
#ifndef CVN_TEXT_ANSWER_FORMS_H
#define CVN_TEXT_ANSWER_FORMS_H

typedef struct AnswerForm {
    const char *name;
    const char *sign;         /* a template with this in its source has this form */
    const char *open, *close; /* of thoughts */
    const char *silent[4];    /* marks around what is said, which nobody reads */
    /* Where each part begins with a header, else NULL: what stands in front of one, and its end; the word in it by which a
       part is a thought, and that behind which a call has its name (NULL: calls have a mark of their own). */
    const char *header, *header_end, *thinks, *calls;
} AnswerForm;

extern const AnswerForm answer_forms[]; /* ended by one without a name */

/* By the source of a template; NULL: answers have no thoughts. */
const AnswerForm *answer_form_find(const char *source);

#endif
