//! The one table of which crate may use which, and the limits.

/// Which in-house crates each crate may use, by the name of its folder.
/// Anything absent is forbidden; all may use `testkit` for tests.
pub(crate) const EDGES: &[(&str, &[&str])] = &[
    ("contract", &[]),
    ("sys", &[]),
    ("format", &["contract"]),
    ("hint", &["contract"]),
    ("modules", &["contract", "hint", "placement"]),
    ("sdk", &["contract", "sys"]),
    ("stack", &["contract", "modules", "sdk", "sys"]),
    ("runtime", &["contract", "sdk", "sys"]),
    ("testkit", &["contract"]),
    ("coord", &["contract", "sys"]),
    ("stores", &["contract", "sys", "format"]),
    ("ipc", &["contract", "sys"]),
    ("log", &["contract", "sys"]),
    ("placement", &["contract", "format", "hint"]),
    ("home", &["contract", "format", "sys"]),
    ("index", &["contract", "format", "home"]),
    ("tiers", &["contract", "placement"]),
    ("core", &["contract", "coord", "format", "hint", "home", "index", "placement", "sys", "tiers"]),
    ("check", &["contract", "core", "format", "home", "sys", "tiers"]),
    (
        "volume",
        &[
            "contract",
            "coord",
            "format",
            "hint",
            "placement",
            "sys",
            "home",
            "index",
            "tiers",
            "core",
            "check",
        ],
    ),
    ("fuse", &["contract", "sys"]),
    ("kv", &["contract"]),
    ("client", &["contract", "sys", "ipc", "runtime", "daemon"]),
    ("cli", &["contract", "ipc", "runtime", "daemon"]),
    (
        "daemon",
        &[
            "contract",
            "sys",
            "hint",
            "placement",
            "volume",
            "stores",
            "modules",
            "log",
            "stack",
            "runtime",
            "ipc",
            "fuse",
            "kv",
        ],
    ),
    ("tests-support", &[]),
    ("tests", &["sys", "testkit", "tests-support"]),
    ("xtask", &["tests-support"]),
];

/// Below this folder, and nowhere else, code may be `unsafe`.
pub(crate) const UNSAFE_HOME: &str = "crates/sys/src/";

/// Lines of code in a file: from here on it is reported.
pub(crate) const FILE_LINES_LARGE: usize = 500;

/// Lines of code in a file: no more than this.
pub(crate) const FILE_LINES_MAX: usize = 800;

/// Lines of code in xtask: no more than this.
pub(crate) const XTASK_LINES_MAX: usize = 2000;

/// Lines of code in a function: nine in ten have no more than this.
pub(crate) const FUNCTION_LINES_P90: usize = 30;

/// Lines of code in a function: 99 in a hundred have no more than this.
pub(crate) const FUNCTION_LINES_P99: usize = 80;

/// Visible entries at the root of the working tree: no more than this.
pub(crate) const ROOT_ENTRIES_MAX: usize = 12;

/// Macros that must not stay in the code.
pub(crate) const FORBIDDEN_MACROS: &[&str] = &["todo", "unimplemented", "dbg"];

/// Files that a type may have inherent methods in: no more than this.
pub(crate) const METHOD_FILES_MAX: usize = 12;
