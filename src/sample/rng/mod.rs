//! Generators of standard normal noise, each equal to a well-known one bit by bit.
#![forbid(unsafe_code)]

mod mersenne;
mod minstd;
mod philox;

pub use mersenne::TorchCpu;
pub use minstd::StdDefault;
pub use philox::Philox;

/// Which generator a seed is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RngKind {
    /// `std::default_random_engine` with `std::normal_distribution` of libstdc++.
    StdDefault,
    /// Philox 4x32, the noise of PyTorch on CUDA.
    #[default]
    Cuda,
    /// Mersenne twister, the noise of PyTorch on a CPU.
    Cpu,
}

impl RngKind {
    /// All kinds in the order of the C enum.
    pub const ALL: [Self; 3] = [Self::StdDefault, Self::Cuda, Self::Cpu];
}

/// A seeded generator. The size of a draw matters: two draws of 8 differ from one draw of 16.
#[derive(Clone, Debug)]
pub enum Rng {
    /// See [`RngKind::StdDefault`].
    StdDefault(StdDefault),
    /// See [`RngKind::Cuda`].
    Cuda(Philox),
    /// See [`RngKind::Cpu`].
    Cpu(Box<TorchCpu>),
}

impl Rng {
    /// A generator of `kind`, started with `seed`.
    pub fn new(kind: RngKind, seed: u64) -> Self {
        match kind {
            RngKind::StdDefault => Self::StdDefault(StdDefault::new(seed)),
            RngKind::Cuda => Self::Cuda(Philox::new(seed)),
            RngKind::Cpu => Self::Cpu(Box::new(TorchCpu::new(seed))),
        }
    }

    /// Fills `out` with one draw of standard normal values.
    pub fn normal(&mut self, out: &mut [f32]) {
        match self {
            Self::StdDefault(rng) => rng.normal(out),
            Self::Cuda(rng) => rng.normal(out),
            Self::Cpu(rng) => rng.normal(out),
        }
    }
}
