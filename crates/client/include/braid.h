/* Keys and values of a directory of a Braid mount, without system calls: by queues in memory
 * that the program shares with the daemon. The mount needs `runtime` (braid mount --runtime).
 * Or of a stack that the program carries out itself (docs/direct.md), without a daemon. Link
 * with -lbraid. docs/kv.md has the promises.
 *
 * All functions may be called by several threads at the same time. The rights are those that
 * the process had when it opened the directory. After a fork, the child opens it anew.
 *
 * Each opened directory takes 4 MiB of memory that is shared with the daemon. A user's sessions
 * with a mount have at most 256 MiB together, and are at most 48: open a directory once, and
 * share it among threads.
 *
 * Functions that return an int return -1 if they fail, and then fill `error`, if that is not
 * null: `number` is as in errno. */
#ifndef BRAID_H
#define BRAID_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct braid_error {
    int number;
    char text[252];
};

/* Bytes, of keys or values. */
struct braid_bytes {
    const void *data;
    size_t len;
};

/* A directory, or the root of a stack. */
struct braid_values;

enum braid_when {
    BRAID_ALWAYS = 0,
    BRAID_IF_ABSENT = 1,
    BRAID_IF_PRESENT = 2,
};

/* Opens a directory, or the stack of a stack file with `exec: direct`. Returns 0. */
int braid_open(const char *directory, struct braid_values **values, struct braid_error *error);

/* Nothing else may be in use. A stack of the program is not closed otherwise, and an error of that
 * is not told: call braid_sync before. */
void braid_close(struct braid_values *values);

/* Returns 1 if the key is there, else 0. The value is freed by braid_free in both cases; it is
 * {NULL, 0} after a failure, which braid_free takes too. `value` may be null. */
int braid_get(const struct braid_values *values, struct braid_bytes key, struct braid_bytes *value,
              struct braid_error *error);

/* As braid_get, but how many bytes the value has: of longer ones too, and without the right to
 * read it. `len` may be null; it is 0 if the key is not there. */
int braid_len(const struct braid_values *values, struct braid_bytes key, uint64_t *len,
              struct braid_error *error);

void braid_free(struct braid_bytes value);

/* Puts a value of up to 1 MiB; a new file gets these permission bits. Returns 1 if it did,
 * 0 if `when` did not hold. */
int braid_put(const struct braid_values *values, struct braid_bytes key, struct braid_bytes value,
              uint32_t when, uint32_t mode, struct braid_error *error);

/* Returns 1 if the key was there, else 0. */
int braid_delete(const struct braid_values *values, struct braid_bytes key, struct braid_error *error);

/* Gets a key, and its value if those are wanted; returns 0 to go on. */
typedef int braid_each(void *context, struct braid_bytes key, struct braid_bytes value);

/* Calls `each` for keys that begin with `prefix`, in the order of their bytes, from the one
 * behind `after` on, if that is not null. Returns 0. A value that is too long ends it with the
 * error of braid_get, after the keys before it. */
int braid_scan(const struct braid_values *values, struct braid_bytes prefix, const struct braid_bytes *after,
               int wants_values, braid_each *each, void *context, struct braid_error *error);

/* The same without a function: gets up to `count` keys, but at least one if there is any, and
 * no more once they have a mebibyte. The page has, for each, the length of the key as a
 * uint64_t, the key, the length of the value (0 if those are not wanted) and the value,
 * unaligned. Returns 1 if there may be more behind the last key, else 0. A page ends before a key
 * that fails; one that would begin with such a key fails. The page is freed by
 * braid_free, as a value is. */
int braid_page(const struct braid_values *values, struct braid_bytes prefix, const struct braid_bytes *after,
               int wants_values, size_t count, struct braid_bytes *page, struct braid_error *error);

/* Makes earlier puts and deletes durable. Returns 0. */
int braid_sync(const struct braid_values *values, struct braid_error *error);

#ifdef __cplusplus
}
#endif

#endif
