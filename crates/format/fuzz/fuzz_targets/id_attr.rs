//! The id attribute of a spread file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| braid_format::fuzzing::id_attr(bytes));
