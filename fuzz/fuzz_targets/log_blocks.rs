#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| landfast_fuzz::log_blocks(data));
