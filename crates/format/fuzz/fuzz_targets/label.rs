//! A tier's label.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| braid_format::fuzzing::label(bytes));
