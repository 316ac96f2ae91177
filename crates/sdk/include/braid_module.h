/* Modules for Braid in C, or in any language that can do what C can. Made from the
   table of operations: `braid module header` prints it. docs/modules.md explains it.
   Dual-licensed like Braid: MIT or Apache-2.0. */
#ifndef BRAID_MODULE_H
#define BRAID_MODULE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BRAID_ABI 1

/* Operations */
#define BRAID_OP_LOOKUP 0
#define BRAID_OP_FORGET 1
#define BRAID_OP_GETATTR 2
#define BRAID_OP_SETATTR 3
#define BRAID_OP_READLINK 4
#define BRAID_OP_MKNOD 5
#define BRAID_OP_MKDIR 6
#define BRAID_OP_SYMLINK 7
#define BRAID_OP_LINK 8
#define BRAID_OP_UNLINK 9
#define BRAID_OP_RMDIR 10
#define BRAID_OP_RENAME 11
#define BRAID_OP_OPEN 12
#define BRAID_OP_CREATE 13
#define BRAID_OP_TMPFILE 14
#define BRAID_OP_READ 15
#define BRAID_OP_WRITE 16
#define BRAID_OP_FLUSH 17
#define BRAID_OP_RELEASE 18
#define BRAID_OP_FSYNC 19
#define BRAID_OP_FALLOCATE 20
#define BRAID_OP_SEEK 21
#define BRAID_OP_COPY_RANGE 22
#define BRAID_OP_OPEN_DIR 23
#define BRAID_OP_READ_DIR 24
#define BRAID_OP_RELEASE_DIR 25
#define BRAID_OP_SYNC_DIR 26
#define BRAID_OP_STATFS 27
#define BRAID_OP_GETXATTR 28
#define BRAID_OP_LISTXATTR 29
#define BRAID_OP_SETXATTR 30
#define BRAID_OP_REMOVEXATTR 31
#define BRAID_OP_SYNC 32
#define BRAID_OP_PATH 33

/* Flags of requests */
#define BRAID_HAS_HANDLE 1
#define BRAID_EXCLUSIVE 2
#define BRAID_READ 4
#define BRAID_WRITE 8
#define BRAID_DIRECT 16
#define BRAID_SYNC 32
#define BRAID_PASSTHROUGH_ALLOWED 64
#define BRAID_PASSTHROUGH_REQUIRED 128
#define BRAID_KILL_SET_ID 256
#define BRAID_WRITE_BACK 512
#define BRAID_DATA_ONLY 1024
#define BRAID_PLUS 2048
#define BRAID_HAS_STREAM 4096
#define BRAID_HAS_LIFE 8192
#define BRAID_KNOWS_GROUPS 16384

/* What changes */
#define BRAID_SET_MODE 1
#define BRAID_SET_UID 2
#define BRAID_SET_GID 4
#define BRAID_SET_SIZE 8
#define BRAID_SET_ACCESSED 16
#define BRAID_SET_MODIFIED 32

/* Renaming, where the new name exists */
#define BRAID_RENAME_REPLACE 0
#define BRAID_RENAME_NO_REPLACE 1
#define BRAID_RENAME_EXCHANGE 2
#define BRAID_RENAME_WHITEOUT 3

/* Allocating */
#define BRAID_ALLOCATE 0
#define BRAID_ALLOCATE_KEEP_SIZE 1
#define BRAID_ALLOCATE_PUNCH 2
#define BRAID_ALLOCATE_ZERO 3
#define BRAID_ALLOCATE_ZERO_KEEP_SIZE 4

/* Seeking */
#define BRAID_SEEK_TO_DATA 0
#define BRAID_SEEK_TO_HOLE 1

/* Setting an extended attribute */
#define BRAID_XATTR_SET 0
#define BRAID_XATTR_CREATE 1
#define BRAID_XATTR_REPLACE 2

/* How data of an open file travels */
#define BRAID_CACHED 0
#define BRAID_UNCACHED 1
#define BRAID_PASSTHROUGH 2

/* Flags of modules */
#define BRAID_EXPORTS_IN_USE 1
#define BRAID_HAS_REPAIR 2

/* What a file system can do */
#define BRAID_CAN_PASS_THROUGH 1
#define BRAID_CAN_RENAME_OTHERWISE 2
#define BRAID_CAN_KEEP_ACLS 4
#define BRAID_WANTS_FLUSH 8
#define BRAID_WANTS_GROUPS 16
#define BRAID_HOLDS_UP 32
#define BRAID_WRITES_THROUGH 64

struct braid_slice;
struct braid_sink;
struct braid_time;
struct braid_attributes;
struct braid_space;
struct braid_dir_entry;
struct braid_numbers;
struct braid_request;
struct braid_answers;
struct braid_reply;
struct braid_capabilities;
struct braid_file_system;
struct braid_crash;
struct braid_module;

/* Bytes, which stay the caller's. Names are not ended by NUL. */
struct braid_slice {
    const uint8_t *data;
    size_t len;
};

/* Where bytes are to be put, at most once; they are copied. */
struct braid_sink {
    void *context;
    void (*put)(void *context, const uint8_t *data, size_t len);
};

/* A time. */
struct braid_time {
    /* Since 1970. */
    int64_t seconds;
    uint32_t nanoseconds;
    /* Of those of a request: set to the present instead. */
    uint32_t now;
};

/* Attributes of an inode. */
struct braid_attributes {
    uint64_t ino;
    /* Differs between two inodes that had the same number one after another. */
    uint64_t generation;
    uint64_t size;
    /* Of 512 bytes. */
    uint64_t blocks;
    struct braid_time accessed;
    struct braid_time modified;
    struct braid_time changed;
    struct braid_time born;
    /* With type bits. */
    uint32_t mode;
    /* Whether the file system knows when it was born. */
    uint32_t knows_birth;
    uint32_t links;
    uint32_t uid;
    uint32_t gid;
    uint32_t rdev;
    uint32_t block_size;
    uint32_t padding;
};

/* Space and inodes of a file system. */
struct braid_space {
    uint64_t total;
    uint64_t free;
    uint64_t available;
    uint64_t files;
    uint64_t files_free;
    uint32_t block_size;
    uint32_t name_max;
};

/* A name of a directory. */
struct braid_dir_entry {
    uint64_t ino;
    int64_t next_offset;
    struct braid_slice name;
    /* Type bits; 0 if not known. */
    uint32_t kind;
    /* Whether `attributes` are there. */
    uint32_t has_attributes;
    /* The file exists, but can't be looked up. */
    uint32_t damaged;
    uint32_t padding;
    struct braid_attributes attributes;
};

/* The arguments that are numbers. Those that an operation does not have are 0. */
struct braid_numbers {
    /* BRAID_OP_... */
    uint32_t operation;
    /* BRAID_HAS_HANDLE, ... */
    uint32_t flags;
    /* The caller. */
    uint32_t uid;
    uint32_t gid;
    uint32_t pid;
    uint32_t tid;
    uint64_t ino;
    uint64_t parent;
    uint64_t new_parent;
    uint64_t handle;
    /* The handle that is copied to. */
    uint64_t to;
    uint64_t offset;
    uint64_t to_offset;
    uint64_t len;
    uint64_t count;
    uint32_t mode;
    uint32_t umask;
    uint32_t rdev;
    /* BRAID_RENAME_..., BRAID_ALLOCATE_..., BRAID_SEEK_..., BRAID_XATTR_... */
    uint32_t how;
    /* What changes: BRAID_SET_MODE, ... */
    uint32_t set;
    uint32_t set_mode;
    uint32_t set_uid;
    uint32_t set_gid;
    uint64_t set_size;
    struct braid_time set_accessed;
    struct braid_time set_modified;
    /* Of a write, with BRAID_HAS_STREAM. */
    uint32_t stream;
    /* Of a write, with BRAID_HAS_LIFE: 0 (short) to 3 (extreme). */
    uint32_t life;
};

/* An operation with its arguments. */
struct braid_request {
    struct braid_numbers numbers;
    /* The caller's further groups, with BRAID_KNOWS_GROUPS. */
    const uint32_t *groups;
    size_t group_count;
    struct braid_slice name;
    struct braid_slice new_name;
    /* What is written, the target of a symbolic link, the value of an attribute. */
    struct braid_slice data;
    /* What is read goes here. */
    uint8_t *buffer;
    size_t buffer_len;
    /* Takes the entries of a directory; returns 0 if there is no room. */
    void *entries;
    int32_t (*add_entry)(void *context, const struct braid_dir_entry *entry);
};

/* The answers that are numbers. */
struct braid_answers {
    struct braid_attributes attributes;
    struct braid_space space;
    uint64_t handle;
    /* Of bytes; the offset that was sought. */
    uint64_t count;
    /* BRAID_CACHED, ... */
    uint32_t io_mode;
    /* Whether executing the file may grant its owner's rights. */
    uint32_t set_id;
    /* With BRAID_PASSTHROUGH: who gets the reply closes it. Else -1. */
    int32_t descriptor;
    uint32_t padding;
};

/* The answer to an operation. Where that fails, the error is the function's result. */
struct braid_reply {
    struct braid_answers answers;
    /* The target of a symbolic link, extended attributes, a path. */
    struct braid_sink bytes;
    /* May get words for the log about an error. */
    struct braid_sink why;
};

/* What a file system can do. */
struct braid_capabilities {
    /* How long names and attributes may be cached, in nanoseconds. */
    uint64_t cache_ttl;
    /* BRAID_CAN_PASS_THROUGH, ... */
    uint32_t flags;
    uint32_t padding;
};

/* A file system. */
struct braid_file_system {
    void *context;
    /* Carries an operation out. Returns 0, or an error number. The request may be
       changed meanwhile, and is as before in the end. */
    int32_t (*call)(void *context, struct braid_request *request, struct braid_reply *reply);
    void (*capabilities)(void *context, struct braid_capabilities *capabilities);
};

/* A crash of the process that served the mount: another one goes on with it. */
struct braid_crash {
    /* How many there were since the mount, with this one. */
    uint64_t count;
    /* How old the state is that the module took over just now, in nanoseconds. */
    uint64_t state_age;
    /* Whether it took one over. */
    uint32_t has_state;
    uint32_t padding;
};

/* A module. Its functions may be called by several threads at once. */
struct braid_module {
    /* BRAID_ABI */
    uint32_t abi;
    /* BRAID_EXPORTS_IN_USE, BRAID_HAS_REPAIR */
    uint32_t flags;
    /* The key in a stack file, ended by NUL: small letters, digits, '-'. */
    const char *name;
    /* Its version, for people, ended by NUL. */
    const char *version;
    /* Whether these settings, as JSON, are right. May be NULL. */
    int32_t (*check)(struct braid_slice settings, const struct braid_sink *why);
    /* Makes one, on a child that lives longer. Returns 0, or an error number. */
    int32_t (*create)(struct braid_slice settings, const struct braid_file_system *child, void **module, const struct braid_sink *why);
    /* The file system will not be used any more. NULL: nothing is to be done. */
    void (*end)(void *module);
    /* Frees it. No call is under way. */
    void (*destroy)(void *module);
    /* As of a file system. */
    int32_t (*call)(void *context, struct braid_request *request, struct braid_reply *reply);
    /* Changes those of the child, with which it is called. NULL: they stay. */
    void (*capabilities)(void *context, struct braid_capabilities *capabilities);
    /* Its state, for its successor. No call is under way, or with BRAID_EXPORTS_IN_USE
       perhaps. NULL: it has none. */
    int32_t (*export_state)(void *module, uint32_t *version, const struct braid_sink *state);
    /* Takes the state of another one over, before its first call. NULL: it takes none. */
    int32_t (*import_state)(void *module, uint32_t version, struct braid_slice state, const struct braid_sink *why);
    /* Only read with BRAID_HAS_REPAIR. Puts right what a crash has left, after
       `import_state` and before the first call; the child may be called. Returns 0, or
       an error number: ENOTRECOVERABLE if going on would be wrong. */
    int32_t (*repair)(void *module, const struct braid_crash *crash, const struct braid_sink *why);
};

/* A module is a shared library with this function. What it returns stays as it is. */
const struct braid_module *braid_module(void);

#ifdef __cplusplus
}
#endif

#endif
