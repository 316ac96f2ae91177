//! The words of an index that change in place.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| braid_format::fuzzing::words(bytes));
