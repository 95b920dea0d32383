//! Control nets: a copy of a UNet's first half that turns a hint picture into residuals for the UNet.
#![forbid(unsafe_code)]

use super::unet::{Trunk, UnetConfig, UnetInput, spread};
use crate::error::{Error, Result};
use crate::graph::{Act, Input, Tensor};
use crate::layer::{Conv2d, Ctx, Env, Map, Runner, timestep_embedding};
use crate::tensor::HostTensor;
use crate::weights::{Index, Loader, Part, Scope, TypePolicy};

/// A control net.
#[derive(Debug)]
pub struct ControlNet {
    trunk: Trunk,
    /// Every second layer of the hint's encoder; SiLU lies between them.
    hint: Vec<Conv2d>,
    /// One for each input block, then the middle's.
    zero: Vec<Conv2d>,
}

impl ControlNet {
    /// The network below `scope` (canonical names have no prefix: `input_blocks`, `zero_convs`, ...).
    pub fn load(scope: &Scope<'_>, config: &UnetConfig) -> Result<Self> {
        let trunk = Trunk::load(scope, *config)?;
        let mut hint = Vec::new();
        for i in (0..32).step_by(2).filter(|i| scope.has_below(format!("input_hint_block.{i}"))) {
            let scope = scope.at(format!("input_hint_block.{i}"));
            let [kernel, _, input, output] = scope.need_shape("weight")?;
            // The layers that widen, but for the last and the first one, halve the picture: 16 to 32 to 96 to 256.
            let stride = if matches!(i, 4 | 8 | 12) { 2 } else { 1 };
            hint.push(Conv2d::load(&scope, input, output, kernel)?.with_stride(stride));
        }
        let mut zero = Vec::new();
        for (i, &channels) in trunk.channels.iter().enumerate() {
            zero.push(Conv2d::load(&scope.at(format!("zero_convs.{i}.0")), channels, channels, 1)?);
        }
        zero.push(Conv2d::load(&scope.at("middle_block_out.0"), trunk.last, trunk.last, 1)?);
        Ok(Self { trunk, hint, zero })
    }

    /// Number of residuals.
    pub fn count(&self) -> usize {
        self.zero.len()
    }

    /// Width of the text.
    pub fn context_width(&self) -> Option<usize> {
        self.trunk.context()
    }

    /// A picture `[8 W, 8 H, 3, 1]`, 0 to 1, to the map `[W, H, M, 1]` that joins the network.
    fn encode_hint<'g>(&self, ctx: &Ctx<'g>, picture: Tensor<'g>) -> Result<Tensor<'g>> {
        let mut h = Map::from_planes(picture)?;
        for (i, conv) in self.hint.iter().enumerate() {
            h = conv.forward(ctx, if i == 0 { h } else { h.act(Act::Silu)? })?;
        }
        h.planes()
    }

    /// Residuals; inputs as in [`super::unet::Unet::forward`] and the encoded hint.
    fn forward<'g>(
        &self,
        ctx: &Ctx<'g>,
        x: Tensor<'g>,
        time: Tensor<'g>,
        context: Tensor<'g>,
        y: Option<Tensor<'g>>,
        hint: Tensor<'g>,
    ) -> Result<Vec<Tensor<'g>>> {
        let given = self.trunk.conditions(ctx, time, context, y, x.dim(3))?;
        let (mut maps, last) = self.trunk.forward(ctx, x, given, Some(Map::from_planes(hint)?))?;
        maps.push(last);
        self.zero.iter().zip(maps).map(|(zero, map)| zero.forward(ctx, map)?.planes()).collect()
    }
}

/// A control net with its weights.
pub struct ControlModel {
    runner: Runner,
    net: ControlNet,
}

impl ControlModel {
    /// The network below `prefix` (empty for canonical names); `fields` names the parameters that could supply it,
    /// for the message.
    pub fn load(
        index: &Index,
        policy: &TypePolicy,
        prefix: &str,
        config: &UnetConfig,
        fields: &str,
    ) -> Result<Self> {
        let loader = Loader::new(index, policy)?;
        let net = ControlNet::load(&loader.scope(prefix), config)?;
        Ok(Self::new(loader.finish("control net", fields)?, net))
    }

    /// Around a network and its weights.
    pub fn new(part: Part, net: ControlNet) -> Self {
        Self { runner: super::runner(part), net }
    }

    /// The network.
    pub fn net(&self) -> &ControlNet {
        &self.net
    }

    /// Weights and graph.
    pub fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// Encodes a hint picture `[8 W, 8 H, 3]`, 0 to 1; done once for all steps.
    pub fn encode_hint(&mut self, env: &Env<'_>, picture: &HostTensor) -> Result<HostTensor> {
        let net = &self.net;
        super::run_one(&mut self.runner, env, picture, |ctx, x| net.encode_hint(ctx, x))
    }

    /// Residuals for the UNet that gets the same `input` (whose `c_concat` and `control` do not count), with the
    /// encoded hint. They replace what is in `residuals`, whose memory is used again.
    pub fn run(
        &mut self,
        env: &Env<'_>,
        input: &UnetInput<'_>,
        hint: &HostTensor,
        residuals: &mut Vec<HostTensor>,
    ) -> Result<()> {
        if (0..2).any(|axis| hint.dim(axis) != input.x.dim(axis)) {
            return Err(Error::shape(
                "control net",
                format!("a hint for {:?}, the latent is {:?}", &hint.shape, &input.x.shape),
            ));
        }
        if self.net.trunk.label_width() != input.y.map(|y| y.dim(0)) {
            return Err(Error::shape(
                "control net",
                format!("labels of width {:?} are wanted", self.net.trunk.label_width()),
            ));
        }
        let (n, width) = (input.x.dim(3), self.net.trunk.model_channels());
        let time = timestep_embedding(&spread(input.timesteps, n)?, width, super::unet::MAX_PERIOD);
        let time = HostTensor::new([width, n], time)?;
        let mut inputs = vec![
            ("x", Input::F32(input.x)),
            ("time", Input::F32(&time)),
            ("context", Input::F32(input.context)),
            ("hint", Input::F32(hint)),
        ];
        inputs.extend(input.y.map(|y| ("y", Input::F32(y))));
        let net = &self.net;
        self.runner.run_into(env, (), &inputs, residuals, |ctx, t| {
            net.forward(ctx, t[0], t[1], t[2], t.get(4).copied(), t[3])
        })
    }
}
