//! The saved counts of ranges.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| braid_volume::fuzzing::counts(bytes));
