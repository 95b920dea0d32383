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

/// Features of the processor that matter here, as `System Info: \n   NAME = 1 | ...`.
pub fn features() -> String {
    let mut text = String::from("System Info: \n");
    for (name, present) in feature_list() {
        if present {
            text.push_str(&format!("   {name} = 1 | "));
        }
    }
    text
}

#[cfg(target_arch = "x86_64")]
fn feature_list() -> Vec<(&'static str, bool)> {
    use std::is_x86_feature_detected as has;
    vec![
        ("SSE3", has!("sse3")),
        ("SSSE3", has!("ssse3")),
        ("AVX", has!("avx")),
        ("AVX_VNNI", has!("avxvnni")),
        ("AVX2", has!("avx2")),
        ("F16C", has!("f16c")),
        ("FMA", has!("fma")),
        ("BMI2", has!("bmi2")),
        ("AVX512", has!("avx512f")),
        ("AVX512_VBMI", has!("avx512vbmi")),
        ("AVX512_VNNI", has!("avx512vnni")),
        ("AVX512_BF16", has!("avx512bf16")),
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn feature_list() -> Vec<(&'static str, bool)> {
    Vec::new()
}

/// Devices, one `name<TAB>description` a line; the names are those that backend settings take.
pub fn devices() -> String {
    crate::graph::devices().iter().map(|(name, description)| format!("{name}\t{description}\n")).collect()
}
