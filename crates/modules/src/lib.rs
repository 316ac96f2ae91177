//! Modules of an I/O stack that wrap another file system.
