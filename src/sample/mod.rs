//! Random generators, schedules, predictions, samplers, guidance, step caches.
#![forbid(unsafe_code)]
