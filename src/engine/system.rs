//! What the machine has.
#![forbid(unsafe_code)]

use std::collections::HashSet;

/// Number of physical cores; on Linux from the table of thread siblings.
pub fn physical_cores() -> usize {
    let mut siblings = HashSet::new();
    if cfg!(target_os = "linux") {
        for cpu in 0.. {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings");
            match std::fs::read_to_string(path) {
                Ok(text) => siblings.insert(text),
                Err(_) => break,
            };
        }
    }
    // Cores that the process may not use (affinity, container quota) would only wait for each other.
    let usable = std::thread::available_parallelism().map_or(4, usize::from);
    if siblings.is_empty() { usable } else { siblings.len().min(usable) }.max(1)
}
