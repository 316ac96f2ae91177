//! The binary interface between Braid and modules that are loaded: its types, and their
//! declarations in C, both from one text. Used by all of `module`.
//!
//! A request has a place for every argument of every operation, and a reply one for
//! every answer. So a module that has nothing to do with an operation passes the request
//! on as it is, and a new operation changes no type.

use bytemuck::{Pod, Zeroable};
use std::ffi::{c_char, c_void};

/// The version of the interface. A module is loaded if it was made for the same one.
pub const ABI: u32 = 1;

/// A type that is declared in C.
trait Declared {
    /// Declares a member of this type, without the semicolon.
    fn member(name: &str) -> String;
}

/// A structure that is declared in C.
trait Structure {
    /// Its members.
    fn members() -> String;
}

macro_rules! numbers {
    ($($rust:ty: $c:literal),*) => {
        $(impl Declared for $rust {
            fn member(name: &str) -> String {
                format!(concat!($c, "{}"), name)
            }
        })*
    };
}

numbers!(
    u32: "uint32_t ",
    i32: "int32_t ",
    u64: "uint64_t ",
    i64: "int64_t ",
    usize: "size_t ",
    *const u8: "const uint8_t *",
    *mut u8: "uint8_t *",
    *const u32: "const uint32_t *",
    *mut c_void: "void *",
    *const c_char: "const char *"
);

macro_rules! functions {
    ($($rust:ident, fn($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[doc = "A function of the interface."]
            pub(super) type $rust = unsafe extern "C" fn($($type),*) -> $result;

            impl Declared for $rust {
                fn member(name: &str) -> String {
                    let arguments: Vec<String> =
                        vec![$(<$type as Declared>::member(stringify!($arg))),*];
                    format!("{}({})", <$result as Declared>::member(&format!("(*{name})")), arguments.join(", "))
                }
            }

            impl Declared for Option<$rust> {
                fn member(name: &str) -> String {
                    <$rust as Declared>::member(name)
                }
            }
        )*
    };
}

impl Declared for () {
    fn member(name: &str) -> String {
        format!("void {name}")
    }
}

functions! {
    CallFn, fn(context: *mut c_void, request: *mut RawRequest, reply: *mut RawReply) -> i32;
    CapabilitiesFn, fn(context: *mut c_void, capabilities: *mut Capabilities) -> ();
    PutFn, fn(context: *mut c_void, data: *const u8, len: usize) -> ();
    AddFn, fn(context: *mut c_void, entry: *const RawDirEntry) -> i32;
    CheckFn, fn(settings: RawSlice, why: *const RawSink) -> i32;
    CreateFn, fn(settings: RawSlice, child: *const RawFileSystem, module: *mut *mut c_void, why: *const RawSink) -> i32;
    EndFn, fn(module: *mut c_void) -> ();
    ExportFn, fn(module: *mut c_void, version: *mut u32, state: *const RawSink) -> i32;
    ImportFn, fn(module: *mut c_void, version: u32, state: RawSlice, why: *const RawSink) -> i32;
    RepairFn, fn(module: *mut c_void, crash: *const RawCrash, why: *const RawSink) -> i32;
}

impl Declared for *mut u32 {
    fn member(name: &str) -> String {
        format!("uint32_t *{name}")
    }
}

impl Declared for *mut *mut c_void {
    fn member(name: &str) -> String {
        format!("void **{name}")
    }
}

macro_rules! structures {
    ($(
        $(#[doc = $doc:literal])*
        $rust:ident as $c:literal ($($derive:ident),*) {
            $($(#[doc = $about:literal])* $field:ident: $type:ty),* $(,)?
        }
    )*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, $($derive),*)]
            #[allow(missing_docs, reason = "names of C, most of which say it all")]
            #[repr(C)]
            pub struct $rust {
                $($(#[doc = $about])* pub $field: $type),*
            }

            impl Structure for $rust {
                fn members() -> String {
                    let mut text = String::new();
                    $(
                        text.push_str(&comment(&[$($about),*], "    "));
                        text.push_str(&format!("    {};\n", <$type as Declared>::member(stringify!($field))));
                    )*
                    text
                }
            }

            impl Declared for $rust {
                fn member(name: &str) -> String {
                    format!(concat!("struct ", $c, " {}"), name)
                }
            }

            impl Declared for *const $rust {
                fn member(name: &str) -> String {
                    format!(concat!("const struct ", $c, " *{}"), name)
                }
            }

            impl Declared for *mut $rust {
                fn member(name: &str) -> String {
                    format!(concat!("struct ", $c, " *{}"), name)
                }
            }
        )*

        /// All structures, declared in C.
        fn structures() -> String {
            let mut text = String::new();
            $(text.push_str(&format!(concat!("struct ", $c, ";\n")));)*
            $(
                text.push('\n');
                text.push_str(&comment(&[$($doc),*], ""));
                text.push_str(&format!(concat!("struct ", $c, " {{\n{}}};\n"), $rust::members()));
            )*
            text
        }

        /// The sizes of the structures and the offsets of their members, by their names in C.
        #[cfg(test)]
        pub(super) fn layout() -> Vec<(String, usize)> {
            let mut layout = Vec::new();
            $(
                layout.push((format!("sizeof(struct {})", $c), size_of::<$rust>()));
                $(layout.push((
                    format!("offsetof(struct {}, {})", $c, stringify!($field)),
                    std::mem::offset_of!($rust, $field),
                ));)*
            )*
            layout
        }
    };
}

fn comment(lines: &[&str], indent: &str) -> String {
    let text: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
    if text.is_empty() {
        String::new()
    } else {
        format!("{indent}/* {} */\n", text.join(&format!("\n{indent}   ")))
    }
}

structures! {
    /// Bytes, which stay the caller's. Names are not ended by NUL.
    RawSlice as "braid_slice" () {
        data: *const u8,
        len: usize,
    }

    /// Where bytes are to be put, at most once; they are copied.
    RawSink as "braid_sink" () {
        context: *mut c_void,
        put: PutFn,
    }

    /// A time.
    Time as "braid_time" (Debug, Default, PartialEq, Eq, Pod, Zeroable) {
        /// Since 1970.
        seconds: i64,
        nanoseconds: u32,
        /// Of those of a request: set to the present instead.
        now: u32,
    }

    /// Attributes of an inode.
    Attributes as "braid_attributes" (Debug, Default, PartialEq, Eq, Pod, Zeroable) {
        ino: u64,
        /// Differs between two inodes that had the same number one after another.
        generation: u64,
        size: u64,
        /// Of 512 bytes.
        blocks: u64,
        accessed: Time,
        modified: Time,
        changed: Time,
        born: Time,
        /// With type bits.
        mode: u32,
        /// Whether the file system knows when it was born.
        knows_birth: u32,
        links: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        block_size: u32,
        padding: u32,
    }

    /// Space and inodes of a file system.
    Space as "braid_space" (Debug, Default, PartialEq, Eq, Pod, Zeroable) {
        total: u64,
        free: u64,
        available: u64,
        files: u64,
        files_free: u64,
        block_size: u32,
        name_max: u32,
    }

    /// A name of a directory.
    RawDirEntry as "braid_dir_entry" () {
        ino: u64,
        next_offset: i64,
        name: RawSlice,
        /// Type bits; 0 if not known.
        kind: u32,
        /// Whether `attributes` are there.
        has_attributes: u32,
        /// The file exists, but can't be looked up.
        damaged: u32,
        padding: u32,
        attributes: Attributes,
    }

    /// The arguments that are numbers. Those that an operation does not have are 0.
    Numbers as "braid_numbers" (Debug, Default, PartialEq, Eq, Pod, Zeroable) {
        /// BRAID_OP_...
        operation: u32,
        /// BRAID_HAS_HANDLE, ...
        flags: u32,
        /// The caller.
        uid: u32,
        gid: u32,
        pid: u32,
        tid: u32,
        ino: u64,
        parent: u64,
        new_parent: u64,
        handle: u64,
        /// The handle that is copied to.
        to: u64,
        offset: u64,
        to_offset: u64,
        len: u64,
        count: u64,
        mode: u32,
        umask: u32,
        rdev: u32,
        /// BRAID_RENAME_..., BRAID_ALLOCATE_..., BRAID_SEEK_..., BRAID_XATTR_...
        how: u32,
        /// What changes: BRAID_SET_MODE, ...
        set: u32,
        set_mode: u32,
        set_uid: u32,
        set_gid: u32,
        set_size: u64,
        set_accessed: Time,
        set_modified: Time,
        /// Of a write, with BRAID_HAS_STREAM.
        stream: u32,
        /// Of a write, with BRAID_HAS_LIFE: 0 (short) to 3 (extreme).
        life: u32,
    }

    /// An operation with its arguments.
    RawRequest as "braid_request" () {
        numbers: Numbers,
        /// The caller's further groups, with BRAID_KNOWS_GROUPS.
        groups: *const u32,
        group_count: usize,
        name: RawSlice,
        new_name: RawSlice,
        /// What is written, the target of a symbolic link, the value of an attribute.
        data: RawSlice,
        /// What is read goes here.
        buffer: *mut u8,
        buffer_len: usize,
        /// Takes the entries of a directory; returns 0 if there is no room.
        entries: *mut c_void,
        add_entry: Option<AddFn>,
    }

    /// The answers that are numbers.
    Answers as "braid_answers" (Debug, Default, PartialEq, Eq, Pod, Zeroable) {
        attributes: Attributes,
        space: Space,
        handle: u64,
        /// Of bytes; the offset that was sought.
        count: u64,
        /// BRAID_CACHED, ...
        io_mode: u32,
        /// Whether executing the file may grant its owner's rights.
        set_id: u32,
        /// With BRAID_PASSTHROUGH: who gets the reply closes it. Else -1.
        descriptor: i32,
        padding: u32,
    }

    /// The answer to an operation. Where that fails, the error is the function's result.
    RawReply as "braid_reply" () {
        answers: Answers,
        /// The target of a symbolic link, extended attributes, a path.
        bytes: RawSink,
        /// May get words for the log about an error.
        why: RawSink,
    }

    /// What a file system can do.
    Capabilities as "braid_capabilities" (Debug, Default, PartialEq, Eq, Pod, Zeroable) {
        /// How long names and attributes may be cached, in nanoseconds.
        cache_ttl: u64,
        /// BRAID_CAN_PASS_THROUGH, ...
        flags: u32,
        padding: u32,
    }

    /// A file system.
    RawFileSystem as "braid_file_system" () {
        context: *mut c_void,
        /// Carries an operation out. Returns 0, or an error number. The request may be
        /// changed meanwhile, and is as before in the end.
        call: CallFn,
        capabilities: CapabilitiesFn,
    }

    /// A crash of the process that served the mount: another one goes on with it.
    RawCrash as "braid_crash" (Debug, Default, PartialEq, Eq, Pod, Zeroable) {
        /// How many there were since the mount, with this one.
        count: u64,
        /// How old the state is that the module took over just now, in nanoseconds.
        state_age: u64,
        /// Whether it took one over.
        has_state: u32,
        padding: u32,
    }

    /// A module. Its functions may be called by several threads at once.
    RawModule as "braid_module" (Debug) {
        /// BRAID_ABI
        abi: u32,
        /// BRAID_EXPORTS_IN_USE, BRAID_HAS_REPAIR
        flags: u32,
        /// The key in a stack file, ended by NUL: small letters, digits, '-'.
        name: *const c_char,
        /// Its version, for people, ended by NUL.
        version: *const c_char,
        /// Whether these settings, as JSON, are right. May be NULL.
        check: Option<CheckFn>,
        /// Makes one, on a child that lives longer. Returns 0, or an error number.
        create: CreateFn,
        /// The file system will not be used any more. NULL: nothing is to be done.
        end: Option<EndFn>,
        /// Frees it. No call is under way.
        destroy: EndFn,
        /// As of a file system.
        call: CallFn,
        /// Changes those of the child, with which it is called. NULL: they stay.
        capabilities: Option<CapabilitiesFn>,
        /// Its state, for its successor. No call is under way, or with BRAID_EXPORTS_IN_USE
        /// perhaps. NULL: it has none.
        export_state: Option<ExportFn>,
        /// Takes the state of another one over, before its first call. NULL: it takes none.
        import_state: Option<ImportFn>,
        /// Only read with BRAID_HAS_REPAIR. Puts right what a crash has left, after
        /// `import_state` and before the first call; the child may be called. Returns 0, or
        /// an error number: ENOTRECOVERABLE if going on would be wrong.
        repair: Option<RepairFn>,
    }
}

macro_rules! constants {
    ($($group:literal { $($(#[doc = $doc:literal])* $name:ident = $value:expr;)* })*) => {
        $($($(#[doc = $doc])* pub const $name: u32 = $value;)*)*

        /// All constants, defined in C.
        fn constants() -> String {
            let mut text = String::new();
            $(
                text.push_str(concat!("\n/* ", $group, " */\n"));
                $(text.push_str(&format!(concat!("#define BRAID_", stringify!($name), " {}\n"), $name));)*
            )*
            text
        }
    };
}

constants! {
    "Flags of requests" {
        /// `handle` counts.
        HAS_HANDLE = 1;
        /// The name must not be there.
        EXCLUSIVE = 1 << 1;
        /// Opened for reading.
        READ = 1 << 2;
        /// Opened for writing.
        WRITE = 1 << 3;
        /// `O_DIRECT`
        DIRECT = 1 << 4;
        /// `O_SYNC`
        SYNC = 1 << 5;
        /// The answer may be a descriptor.
        PASSTHROUGH_ALLOWED = 1 << 6;
        /// The answer has to be a descriptor.
        PASSTHROUGH_REQUIRED = 1 << 7;
        /// Set-id bits go.
        KILL_SET_ID = 1 << 8;
        /// The kernel writes back earlier writes.
        WRITE_BACK = 1 << 9;
        /// Only what is needed to read the data.
        DATA_ONLY = 1 << 10;
        /// Entries come with attributes.
        PLUS = 1 << 11;
        /// `stream` counts.
        HAS_STREAM = 1 << 12;
        /// `life` counts.
        HAS_LIFE = 1 << 13;
        /// The caller's further groups are known.
        KNOWS_GROUPS = 1 << 14;
    }
    "What changes" {
        /// Permissions.
        SET_MODE = 1;
        /// Owner.
        SET_UID = 1 << 1;
        /// Group.
        SET_GID = 1 << 2;
        /// Size.
        SET_SIZE = 1 << 3;
        /// Access time.
        SET_ACCESSED = 1 << 4;
        /// Modification time.
        SET_MODIFIED = 1 << 5;
    }
    "Renaming, where the new name exists" {
        /// Replaces it.
        RENAME_REPLACE = 0;
        /// Fails.
        RENAME_NO_REPLACE = 1;
        /// Exchanges the two.
        RENAME_EXCHANGE = 2;
        /// Replaces it, and leaves a whiteout.
        RENAME_WHITEOUT = 3;
    }
    "Allocating" {
        /// Reserves, and grows the file.
        ALLOCATE = 0;
        /// Reserves.
        ALLOCATE_KEEP_SIZE = 1;
        /// Frees.
        ALLOCATE_PUNCH = 2;
        /// Makes zeros, and grows the file.
        ALLOCATE_ZERO = 3;
        /// Makes zeros.
        ALLOCATE_ZERO_KEEP_SIZE = 4;
    }
    "Seeking" {
        /// Data.
        SEEK_TO_DATA = 0;
        /// A hole.
        SEEK_TO_HOLE = 1;
    }
    "Setting an extended attribute" {
        /// Either way.
        XATTR_SET = 0;
        /// Fails if it exists.
        XATTR_CREATE = 1;
        /// Fails if it does not.
        XATTR_REPLACE = 2;
    }
    "How data of an open file travels" {
        /// By the kernel's cache.
        CACHED = 0;
        /// Each call becomes a request.
        UNCACHED = 1;
        /// By the descriptor of the reply.
        PASSTHROUGH = 2;
    }
    "Flags of modules" {
        /// `export_state` may be called while calls are under way: only then is its state kept
        /// for the case of a crash.
        EXPORTS_IN_USE = 1;
        /// `repair` is there.
        HAS_REPAIR = 1 << 1;
    }
    "What a file system can do" {
        /// Answer descriptors.
        CAN_PASS_THROUGH = 1;
        /// Rename otherwise than by replacing.
        CAN_RENAME_OTHERWISE = 1 << 1;
        /// Keep POSIX ACLs.
        CAN_KEEP_ACLS = 1 << 2;
        /// It wants closes to wait for `flush`.
        WANTS_FLUSH = 1 << 3;
        /// It wants the caller's further groups.
        WANTS_GROUPS = 1 << 4;
        /// It holds operations up on purpose.
        HOLDS_UP = 1 << 5;
        /// Make each change durable before it answers.
        WRITES_THROUGH = 1 << 6;
    }
}

/// The header for modules in C, with the operations of this list.
#[must_use]
pub fn c_header(operations: &[&str]) -> String {
    let mut text = String::from(
        "/* Modules for Braid in C, or in any language that can do what C can. Made from the\n   \
         table of operations: `braid module header` prints it. docs/modules.md explains it.\n   \
         Dual-licensed like Braid: MIT or Apache-2.0. */\n\
         #ifndef BRAID_MODULE_H\n#define BRAID_MODULE_H\n\n#include <stddef.h>\n#include <stdint.h>\n\n\
         #ifdef __cplusplus\nextern \"C\" {\n#endif\n\n",
    );
    text.push_str(&format!("#define BRAID_ABI {ABI}\n\n/* Operations */\n"));
    for (number, name) in operations.iter().enumerate() {
        text.push_str(&format!("#define BRAID_OP_{} {number}\n", name.to_uppercase()));
    }
    text.push_str(&constants());
    text.push('\n');
    text.push_str(&structures());
    text.push_str(
        "\n/* A module is a shared library with this function. What it returns stays as it is. */\n\
         const struct braid_module *braid_module(void);\n\n\
         #ifdef __cplusplus\n}\n#endif\n\n#endif\n",
    );
    text
}
