#![no_main]
mod readers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| readers::imatrix(data));
