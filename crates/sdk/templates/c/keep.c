/* Lets no file be removed whose name ends as the setting says, and counts how often it
 * refused: `getfattr -n user.keep MOUNT`. The count goes on in the next version, and after a
 * crash of the process.
 *
 *   stack:
 *     keep:
 *       suffix: .keep
 *       volume: { tiers: { a: { dir: /mnt/a } } }
 */
#include "braid_module.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef VERSION
#define VERSION "1.0.0"
#endif

#define SUFFIX_MAX 64
#define STATE_VERSION 1
#define ROOT 1

struct keep {
    const struct braid_file_system *child;
    size_t suffix_len;
    uint8_t suffix[SUFFIX_MAX];
    _Atomic uint64_t refused;
};

static void say(const struct braid_sink *why, const char *text)
{
    why->put(why->context, (const uint8_t *)text, strlen(text));
}

/* The settings are {"suffix":"..."}: no more is understood. */
static int settings_of(struct braid_slice settings, struct keep *keep)
{
    static const char head[] = "{\"suffix\":\"", tail[] = "\"}";
    size_t around = strlen(head) + strlen(tail);
    if (settings.len <= around || settings.len - around > SUFFIX_MAX)
        return -1;
    keep->suffix_len = settings.len - around;
    if (memcmp(settings.data, head, strlen(head)) != 0 ||
        memcmp(settings.data + settings.len - strlen(tail), tail, strlen(tail)) != 0)
        return -1;
    memcpy(keep->suffix, settings.data + strlen(head), keep->suffix_len);
    return memchr(keep->suffix, '"', keep->suffix_len) || memchr(keep->suffix, '\\', keep->suffix_len) ? -1 : 0;
}

static int32_t check(struct braid_slice settings, const struct braid_sink *why)
{
    struct keep keep;
    if (settings_of(settings, &keep) == 0)
        return 0;
    say(why, "write suffix: TEXT, of 1 to 64 bytes without quotes, and nothing else");
    return EINVAL;
}

static int32_t create(struct braid_slice settings, const struct braid_file_system *child, void **module,
                      const struct braid_sink *why)
{
    struct keep *keep = calloc(1, sizeof *keep);
    if (!keep)
        return ENOMEM;
    if (settings_of(settings, keep) != 0) {
        free(keep);
        return check(settings, why);
    }
    keep->child = child;
    *module = keep;
    return 0;
}

static void destroy(void *module)
{
    free(module);
}

static int is_kept(const struct keep *keep, struct braid_slice name)
{
    return name.len >= keep->suffix_len &&
           memcmp(name.data + name.len - keep->suffix_len, keep->suffix, keep->suffix_len) == 0;
}

static int32_t call(void *module, struct braid_request *request, struct braid_reply *reply)
{
    struct keep *keep = module;
    static const char attribute[] = "user.keep";
    char count[24];

    switch (request->numbers.operation) {
    case BRAID_OP_UNLINK:
        if (!is_kept(keep, request->name))
            break;
        atomic_fetch_add(&keep->refused, 1);
        return EPERM;
    case BRAID_OP_GETXATTR:
        if (request->numbers.ino != ROOT || request->name.len != strlen(attribute) ||
            memcmp(request->name.data, attribute, strlen(attribute)) != 0)
            break;
        snprintf(count, sizeof count, "%llu", (unsigned long long)atomic_load(&keep->refused));
        reply->bytes.put(reply->bytes.context, (const uint8_t *)count, strlen(count));
        return 0;
    }
    /* All else is the child's. */
    return keep->child->call(keep->child->context, request, reply);
}

static int32_t export_state(void *module, uint32_t *version, const struct braid_sink *state)
{
    struct keep *keep = module;
    uint64_t refused = atomic_load(&keep->refused);
    *version = STATE_VERSION;
    state->put(state->context, (const uint8_t *)&refused, sizeof refused);
    return 0;
}

static int32_t import_state(void *module, uint32_t version, struct braid_slice state, const struct braid_sink *why)
{
    struct keep *keep = module;
    uint64_t refused;
    if (version != STATE_VERSION || state.len != sizeof refused) {
        say(why, "a state that this version does not know");
        return EINVAL;
    }
    memcpy(&refused, state.data, sizeof refused);
    atomic_store(&keep->refused, refused);
    return 0;
}

static const struct braid_module description = {
    .abi = BRAID_ABI,
    /* The count is atomic. So it outlives a crash of the process, but for the last second. */
    .flags = BRAID_EXPORTS_IN_USE,
    .name = "keep",
    .version = VERSION,
    .check = check,
    .create = create,
    .destroy = destroy,
    .call = call,
    .export_state = export_state,
    .import_state = import_state,
};

__attribute__((visibility("default"))) const struct braid_module *braid_module(void)
{
    return &description;
}
