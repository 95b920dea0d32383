//! File formats: readers and streaming writers.
