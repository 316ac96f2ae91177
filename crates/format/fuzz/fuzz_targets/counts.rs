//! The saved counts of ranges.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| braid_format::fuzzing::counts(bytes));
