//! ESRGAN upscalers: residual dense blocks at the small size, then enlargement.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::layer::{Conv2d, Ctx, Env, Map, Runner};
use crate::tensor::HostTensor;
use crate::weights::{Index, Loader, Scope, TypePolicy};

/// Slope of the activation below zero.
const SLOPE: f32 = 0.2;
/// Share of a block's result that is added to its input.
const SHARE: f32 = 0.2;

fn conv(scope: &Scope<'_>, input: usize, output: usize) -> Result<Conv2d> {
    Conv2d::load(scope, input, output, 3)
}

/// Five convolutions, each of which sees the results of all before it.
#[derive(Debug)]
struct DenseBlock {
    convs: Vec<Conv2d>,
}

impl DenseBlock {
    fn load(scope: &Scope<'_>, features: usize) -> Result<Self> {
        let growth = scope.need_shape("conv1.weight")?[3];
        let convs = (0..5)
            .map(|i| {
                let output = if i == 4 { features } else { growth };
                conv(&scope.at(format!("conv{}", i + 1)), features + i * growth, output)
            })
            .collect::<Result<_>>()?;
        Ok(Self { convs })
    }

    fn forward<'g>(&self, ctx: &Ctx<'g>, x: Map<'g>) -> Result<Map<'g>> {
        let (mut seen, mut h) = (x, x);
        for (i, conv) in self.convs.iter().enumerate() {
            h = conv.forward(ctx, seen)?;
            if i + 1 < self.convs.len() {
                h = h.leaky_relu(SLOPE)?;
                seen = seen.concat(h)?;
            }
        }
        h.scale(SHARE)?.add(x)
    }
}

/// An ESRGAN network.
#[derive(Debug)]
pub struct Esrgan {
    first: Conv2d,
    /// Three dense blocks each.
    body: Vec<[DenseBlock; 3]>,
    after: Conv2d,
    /// Each doubles the picture.
    up: Vec<Conv2d>,
    high: Conv2d,
    last: Conv2d,
}

impl Esrgan {
    /// The network below `scope`: `conv_first`, `body.N.rdb1`, `conv_body`, `conv_up1`, `conv_up2`, `conv_hr`,
    /// `conv_last`.
    pub fn load(scope: &Scope<'_>) -> Result<Self> {
        let [_, _, input, features] = scope.need_shape("conv_first.weight")?;
        let output = scope.need_shape("conv_last.weight")?[3];
        let same = |name: &str| conv(&scope.at(name), features, features);
        let body = (0..scope.count("body"))
            .map(|i| {
                let block = |j: usize| DenseBlock::load(&scope.at(format!("body.{i}.rdb{j}")), features);
                Ok([block(1)?, block(2)?, block(3)?])
            })
            .collect::<Result<Vec<_>>>()?;
        if body.is_empty() {
            return Err(Error::Weights("the upscaler has no body: no tensor body.0.* was found".into()));
        }
        let up = ["conv_up1", "conv_up2"].into_iter().filter(|name| scope.has_below(name)).map(same);
        Ok(Self {
            first: conv(&scope.at("conv_first"), input, features)?,
            body,
            after: same("conv_body")?,
            up: up.collect::<Result<_>>()?,
            high: same("conv_hr")?,
            last: conv(&scope.at("conv_last"), features, output)?,
        })
    }

    /// Pixels per pixel along one axis: 1, 2 or 4.
    pub fn scale(&self) -> usize {
        1 << self.up.len()
    }

    /// Channels of the picture.
    pub fn channels(&self) -> usize {
        self.first.input()
    }

    /// `[W, H, 3, N]` to `[s W, s H, 3, N]`, both 0 to 1.
    pub fn forward<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
        let features = self.first.forward(ctx, Map::from_planes(x)?)?;
        let mut h = features;
        for (i, blocks) in self.body.iter().enumerate() {
            let dense = blocks.iter().try_fold(h, |h, block| block.forward(ctx, h))?;
            h = dense.scale(SHARE)?.add(h)?;
            ctx.graph.cut(&format!("body.{i}"), h.tensor());
        }
        h = self.after.forward(ctx, h)?.add(features)?;
        for conv in &self.up {
            h = conv.forward(ctx, h.upsample(2)?)?.leaky_relu(SLOPE)?;
        }
        self.last.forward(ctx, self.high.forward(ctx, h)?.leaky_relu(SLOPE)?)?.planes()
    }
}

/// An upscaler with its weights.
pub struct EsrganModel {
    runner: Runner,
    net: Esrgan,
}

impl EsrganModel {
    /// The network of `index`; `field` names the parameter that gave the file, for the message.
    pub fn load(index: &Index, policy: &TypePolicy, field: &str) -> Result<Self> {
        let loader = Loader::new(index, policy)?;
        let net = Esrgan::load(&loader.scope(""))?;
        Ok(Self { runner: super::runner(loader.finish("upscaler", field)?), net })
    }

    /// The network.
    pub fn net(&self) -> &Esrgan {
        &self.net
    }

    /// Weights and graph.
    pub fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// Enlarges `[W, H, 3]` pixels in 0 to 1.
    pub fn run(&mut self, env: &Env<'_>, pixels: &HostTensor) -> Result<HostTensor> {
        let net = &self.net;
        super::run_one(&mut self.runner, env, pixels, |ctx, x| net.forward(ctx, x))
    }
}
