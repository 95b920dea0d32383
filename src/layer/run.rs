//! Running networks: one graph per shape of input, kept between steps.
#![forbid(unsafe_code)]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::ctx::{Adapters, Ctx};
use crate::cancel::CancelToken;
use crate::error::Result;
use crate::graph::{Device, Input, Math, Program, Tensor, Watch};
use crate::tensor::HostTensor;
use crate::weights::{LoadOptions, Part};

/// What all networks of a context share while one call runs.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// Where graphs are computed.
    pub device: &'a Device,
    /// How products are computed.
    pub math: Math,
    /// Whether width and height wrap around.
    pub circular: [bool; 2],
    /// Whether to point into files instead of copying them.
    pub mmap: bool,
    /// Cancelling and the node callback, while graphs run.
    pub watch: &'a dyn Watch,
    /// Cancelling, from any thread.
    pub cancel: &'a CancelToken,
    /// Told about tensors being loaded: done, of all.
    pub load_progress: &'a dyn Fn(usize, usize),
}

/// A network's weights and its latest graph.
pub struct Runner {
    part: Part,
    adapters: Option<Arc<dyn Adapters>>,
    program: Option<(u64, Program)>,
    capacity: usize,
    waits_on_disk: bool,
}

impl Runner {
    /// A runner for the network with these weights, whose graphs have at most `capacity` tensors.
    pub fn new(part: Part, capacity: usize) -> Self {
        Self { part, adapters: None, program: None, capacity, waits_on_disk: false }
    }

    /// The network's weights.
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// The network's weights, to load, unload or merge into.
    pub fn part_mut(&mut self) -> &mut Part {
        &mut self.part
    }

    /// Sets the adapters applied while computing.
    pub fn set_adapters(&mut self, adapters: Option<Arc<dyn Adapters>>) {
        self.adapters = adapters;
    }

    /// Says where the weights wait while the network is unused: in memory, or in their files.
    pub fn set_waits_on_disk(&mut self, on_disk: bool) {
        self.waits_on_disk = on_disk;
    }

    /// Ends a phase of use: frees intermediate values, and the weights where they wait in their files.
    pub fn rest(&mut self) {
        self.program = None;
        if self.waits_on_disk {
            self.part.unload();
        }
    }

    /// Loads the weights now, if they are not there.
    pub fn load(&mut self, env: &Env<'_>) -> Result<()> {
        self.part.load(&LoadOptions {
            device: env.device,
            threads: env.device.threads(),
            mmap: env.mmap,
            progress: env.load_progress,
            cancelled: &|| env.cancel.stop(),
        })
    }

    /// Computes the network on `inputs`.
    ///
    /// `variant` tells apart whatever `describe` depends on besides the shapes of the inputs; with the same
    /// variant, shapes and adapters the graph of the last call is used again.
    pub fn run(
        &mut self,
        env: &Env<'_>,
        variant: impl Hash,
        inputs: &[(&str, Input<'_>)],
        describe: impl for<'g> FnOnce(&Ctx<'g>, &[Tensor<'g>]) -> Result<Vec<Tensor<'g>>>,
    ) -> Result<Vec<HostTensor>> {
        let mut outputs = Vec::new();
        self.run_into(env, variant, inputs, &mut outputs, describe)?;
        Ok(outputs)
    }

    /// As [`Runner::run`], reusing the memory of `outputs`.
    pub fn run_into(
        &mut self,
        env: &Env<'_>,
        variant: impl Hash,
        inputs: &[(&str, Input<'_>)],
        outputs: &mut Vec<HostTensor>,
        describe: impl for<'g> FnOnce(&Ctx<'g>, &[Tensor<'g>]) -> Result<Vec<Tensor<'g>>>,
    ) -> Result<()> {
        self.load(env)?;
        let key = self.key(env, variant, inputs);
        if !self.program.as_ref().is_some_and(|(k, p)| *k == key && p.is_current()) {
            self.program = None;
            let adapters = self.adapters.clone();
            let program = Program::build(env.device, env.math, self.capacity, inputs, |graph, tensors| {
                describe(&Ctx { graph, adapters, circular: env.circular }, tensors)
            })?;
            self.program = Some((key, program));
        }
        let Some((_, program)) = &mut self.program else {
            return Err(crate::Error::Internal("a program that was just built is gone".into()));
        };
        let values: Vec<_> = inputs.iter().map(|(_, input)| *input).collect();
        program.run_into(env.device, &values, env.watch, outputs)
    }

    fn key(&self, env: &Env<'_>, variant: impl Hash, inputs: &[(&str, Input<'_>)]) -> u64 {
        let mut hasher = DefaultHasher::new();
        variant.hash(&mut hasher);
        env.math.hash(&mut hasher);
        env.circular.hash(&mut hasher);
        self.adapters.as_ref().map(|a| a.fingerprint()).hash(&mut hasher);
        for (name, input) in inputs {
            name.hash(&mut hasher);
            input.shape().hash(&mut hasher);
        }
        hasher.finish()
    }
}
