/*
 * The folder of a new run, and its tokenizer, copied or made.
 *
 * Until everything else is known to be right, the tokenizer lies in RUN/.new-XXXXXX, and run_keep_folder
 * moves it to its place as the last thing before the first step. What is refused before, run_clear_folder
 * undoes: the tokenizer, and RUN itself if it was made for this run. A process that is killed undoes nothing: the
 * folder of such a one is known by the lock on it, which nobody holds any more, and the next that opens RUN
 * removes it, as it does with what file_writer left half written, NAME.tmp-PID-N, once it has the run's own lock.
 */
#include "train/run_impl.h"

#include "text/chat_template.h"
#include "text/tokenizer_config.h"

#include "io/save.h"
#include "model/presets.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define FRESH ".new-"

static const char *path_in(Run *r, const char *folder, const char *name)
{
    return arena_printf(&r->arena, "%s/%s", folder, name);
}

/* What runs that were killed have left here. */
static void clear_left(Run *r)
{
    DIR *stream = opendir(r->out);
    if (!stream)
        return;
    for (struct dirent *entry; (entry = readdir(stream));) {
        const char *folder = path_in(r, r->out, entry->d_name);
        bool fresh = strncmp(entry->d_name, FRESH, sizeof FRESH - 1) == 0;
        int fd = fresh ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
        if (fd < 0)
            continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) /* one that lives holds the lock on its own */
            file_remove_folder(folder, NULL);
        close(fd);
    }
    closedir(stream);
    file_clear_left(r->out, NULL);
}

/* RUN/.new-XXXXXX, locked. Again where another process took it for a dead one's in between. */
static int make_fresh(Run *r, cvn_err *err)
{
    for (;;) {
        char *fresh = arena_copy(&r->arena, path_in(r, r->out, FRESH "XXXXXX"),
                                 strlen(r->out) + sizeof "/" FRESH "XXXXXX");
        if (!mkdtemp(fresh))
            return err_set(err, CVN_EIO, "cannot write into '%s': %s", r->out, strerror(errno));
        r->folder.fresh_lock = open(fresh, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        bool taken = r->folder.fresh_lock >= 0 &&
                     flock(r->folder.fresh_lock, LOCK_EX | LOCK_NB) != 0 &&
                     errno == EWOULDBLOCK; /* not: a file system without locks */
        if (!taken && file_is_folder(fresh)) {
            r->folder.fresh = fresh;
            return CVN_OK;
        }
        close(r->folder.fresh_lock);
    }
}

static int make_folder(Run *r, cvn_err *err)
{
    bool existed = file_exists(r->out);
    TRY(file_make_folder(r->out, err));
    r->folder.made = !existed;
    if (r->begin.resuming && access(r->out, W_OK | X_OK) != 0)
        return err_set(err, CVN_EIO, "cannot write into '%s': %s", r->out, strerror(errno));
    clear_left(r);
    return r->begin.resuming ? CVN_OK : make_fresh(r, err);
}

int run_make_folder(Run *r, cvn_err *err)
{
    return run_together(r, run_is_first(r) ? make_folder(r, err) : CVN_OK, err);
}

/* Copies the tokenizer and what describes it from a file or folder. */
static int copy_tokenizer(Run *r, const char *from, cvn_err *err)
{
    return file_is_folder(from) ? save_copy_tokenizer(from, r->folder.fresh, err)
                                : tokenizer_copy(from, r->folder.fresh, err);
}

/* The chat template that was asked for, and what transformers wants to know of a tokenizer.json that comes alone. */
static int describe_tokenizer(Run *r, const Tokenizer *tokenizer, cvn_err *err)
{
    ChatTemplate *chat = NULL;
    if (r->config.chat_template) {
        TRY(chat_template_open(tokenizer, r->config.chat_template, &chat, err));
        const char *source = chat_template_source(chat);
        int code = file_write(path_in(r, r->folder.fresh, "chat_template.jinja"), source,
                              strlen(source), err);
        chat_template_free(chat);
        TRY(code);
    }
    return file_has(r->folder.fresh, "tokenizer.json") &&
                   !file_has(r->folder.fresh, "tokenizer_config.json")
               ? tokenizer_config_write(tokenizer, r->folder.fresh, err)
               : CVN_OK;
}

/* Makes the tokenizer of a run in RUN/.new-XXXXXX. */
static int prepare_tokenizer(Run *r, cvn_err *err)
{
    const char *from = r->config.tokenizer ? r->config.tokenizer : r->config.init;
    Tokenizer *look; /* what is wrong with it should name the file that was given */
    if (r->begin.resuming)
        return CVN_OK;
    if (!from) { /* a new one of the data, with as many pieces as the preset has */
        Model *preset;
        int32_t reached;
        TRY(preset_model(r->config.preset, &preset, &r->arena, err));
        DataOptions options = {.paths = r->config.data,
                               .n_paths = (size_t)r->config.n_data,
                               .vocab = (int32_t)model_vocab(preset),
                               .progress = run_goes_on,
                               .context = r};
        from = path_in(r, r->folder.fresh, tokenizer_files[0]);
        TRY(data_train_tokenizer(&options, from, &reached, err));
        run_note(r, "tokenizer: %d tokens, trained on the data", (int)reached);
    }
    bool any = from != r->config.init || !file_is_folder(from); /* a file has it inside */
    for (int i = 0; i < TOKENIZER_KINDS; i++)
        any = any || file_has(from, tokenizer_files[i]);
    if (!any)
        return err_set(err, CVN_EINVAL,
                       "the model '%s' has no tokenizer; give one with --tokenizer", from);
    TRY(tokenizer_open(from, &look, err));
    int code = from == r->config.tokenizer || from == r->config.init ? copy_tokenizer(r, from, err)
                                                                     : CVN_OK;
    code = code ? code : describe_tokenizer(r, look, err);
    tokenizer_free(look);
    return code;
}

int run_open_tokenizer(Run *r, cvn_err *err)
{
    r->tokens.folder = r->begin.resuming ? r->out : r->folder.fresh;
    TRY(run_together(r, run_is_first(r) ? prepare_tokenizer(r, err) : CVN_OK, err));
    TRY(run_share_path(r, &r->tokens.folder, err));
    TRY(tokenizer_open(r->tokens.folder, &r->tokens.tokenizer, err));
    for (int i = 0; i < TOKENIZER_KINDS && !r->tokens.file; i++)
        if (file_exists(path_in(r, r->tokens.folder, tokenizer_files[i])))
            r->tokens.file = path_in(r, r->out, tokenizer_files[i]);
    return CVN_OK;
}

int run_keep_folder(Run *r, cvn_err *err)
{
    if (!r->folder.fresh)
        return CVN_OK;
    for (int i = 0; tokenizer_files[i]; i++) {
        const char *from = path_in(r, r->folder.fresh, tokenizer_files[i]),
                   *to = path_in(r, r->out, tokenizer_files[i]);
        if (file_exists(from) && rename(from, to) != 0)
            return err_set(err, CVN_EIO, "cannot write '%s': %s", to, strerror(errno));
    }
    rmdir(r->folder.fresh);
    close(r->folder.fresh_lock);
    r->folder.fresh = NULL;
    return CVN_OK;
}

void run_clear_folder(Run *r)
{
    if (!r->folder.fresh)
        return;
    file_remove_folder(r->folder.fresh, NULL);
    close(r->folder.fresh_lock);
    if (r->folder.made)
        rmdir(r->out);
}
