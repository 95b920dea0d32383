//! Which instruction sets the kernels may use, found out once per process.

use std::sync::OnceLock;

/// Instruction set a kernel is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuPath {
    /// AMX-BF16 tiles, with AVX-512 (BF16 part included) for everything around them.
    Amx,
    /// AVX-512 F, BW, DQ and VL with FMA; products in f32.
    Avx512,
    /// AVX2, FMA and F16C; products in f32.
    Avx2,
}

/// Name of the environment variable that forces a path: `amx`, `avx512`, `avx2` or `ggml`.
///
/// It is read once per process. A path the machine lacks falls to the next one it has; `ggml` (no kernel of
/// this room is used) is for comparisons and for tools such as valgrind that do not know AMX.
pub const PATH_VARIABLE: &str = "SD_CPU_PATH";

/// The best path this process may use, `None` when the caller should keep ggml's own nodes.
pub fn cpu_path() -> Option<CpuPath> {
    static CHOSEN: OnceLock<Option<CpuPath>> = OnceLock::new();
    *CHOSEN.get_or_init(|| choose(std::env::var(PATH_VARIABLE).ok().as_deref()))
}

/// All paths this machine can run, fastest first; tests and benches go through them.
pub fn available_paths() -> Vec<CpuPath> {
    [CpuPath::Amx, CpuPath::Avx512, CpuPath::Avx2].into_iter().filter(|&p| supported(p)).collect()
}

fn choose(wish: Option<&str>) -> Option<CpuPath> {
    let first = match wish.map(str::trim) {
        Some("ggml") => return None,
        Some("avx2") => 2,
        Some("avx512") => 1,
        _ => 0,
    };
    [CpuPath::Amx, CpuPath::Avx512, CpuPath::Avx2].into_iter().skip(first).find(|&p| supported(p))
}

/// Whether this machine and its kernel let the process use `path`.
pub fn supported(path: CpuPath) -> bool {
    match path {
        CpuPath::Amx => supported(CpuPath::Avx512) && has_avx512_bf16() && amx_granted(),
        CpuPath::Avx512 => has_avx512(),
        CpuPath::Avx2 => has_avx2(),
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512_bf16() -> bool {
    is_x86_feature_detected!("avx512bf16")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512_bf16() -> bool {
    false
}

/// Asks the processor for AMX-TILE and AMX-BF16 and Linux for the right to use tile data.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn amx_granted() -> bool {
    static GRANTED: OnceLock<bool> = OnceLock::new();
    *GRANTED.get_or_init(|| {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        const TILE: u32 = 1 << 24;
        const BF16: u32 = 1 << 22;
        const OSXSAVE: u32 = 1 << 27;
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XFEATURE_TILEDATA: libc::c_long = 18;
        if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
            return false;
        }
        let leaf7 = __cpuid_count(7, 0);
        if leaf7.edx & TILE == 0 || leaf7.edx & BF16 == 0 || !tile_state_enabled() {
            return false;
        }
        // SAFETY: a plain system call with integer arguments; an unknown code only makes it return -1.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILEDATA) == 0 }
    })
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn amx_granted() -> bool {
    false
}

/// XCR0 bits 17 (tile configuration) and 18 (tile data); the caller has seen OSXSAVE.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn tile_state_enabled() -> bool {
    let (low, _high): (u32, u32);
    // SAFETY: `xgetbv` with index 0 is valid whenever OSXSAVE is set, which `amx_granted` checked.
    unsafe {
        std::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _high, options(nomem, nostack))
    };
    low >> 17 & 3 == 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forced_path_is_never_faster_than_asked() {
        assert_eq!(choose(Some("ggml")), None);
        assert_ne!(choose(Some("avx2")), Some(CpuPath::Amx));
        assert_ne!(choose(Some("avx2")), Some(CpuPath::Avx512));
        assert_ne!(choose(Some("avx512")), Some(CpuPath::Amx));
        assert_eq!(choose(None), available_paths().first().copied());
        assert_eq!(choose(Some("unknown")), choose(None));
    }
}
