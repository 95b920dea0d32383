//! The UNet of latent diffusion models, in all its sizes.
//!
//! Every size comes from shapes and the modules of each block from the names below it, so that full, distilled
//! and tiny networks (without a middle block, with fewer levels or layers) need no case of their own.
#![forbid(unsafe_code)]

pub use super::unet_blocks::Heads;
use super::unet_blocks::{Block, Conditions};
use crate::error::{Error, Result};
use crate::graph::{Act, Input, Tensor};
use crate::layer::{Conv2d, Ctx, Env, GroupNorm, Linear, Map, Runner, timestep_embedding};
use crate::tensor::HostTensor;
use crate::weights::{Index, Loader, Part, Scope, TypePolicy};

/// Blocks are numbered below this.
const MAX_BLOCKS: usize = 64;
/// Longest period of the sinusoids of time.
pub(super) const MAX_PERIOD: f32 = 10000.0;

/// What no shape tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnetConfig {
    /// Heads of the attentions.
    pub heads: Heads,
}

/// First half and middle of a UNet; control nets have the same.
#[derive(Debug)]
pub(super) struct Trunk {
    time: [Linear; 2],
    label: Option<[Linear; 2]>,
    inputs: Vec<(usize, Block)>,
    middle: Option<Block>,
    /// Channels of each input block's result, and of the middle's.
    pub channels: Vec<usize>,
    pub last: usize,
}

impl Trunk {
    pub fn load(scope: &Scope<'_>, config: UnetConfig) -> Result<Self> {
        let [width, time, ..] = scope.need_shape("time_embed.0.weight")?;
        let two = |name: &str, input: usize| -> Result<[Linear; 2]> {
            let scope = scope.at(name);
            Ok([Linear::load(&scope.at(0), input, time)?, Linear::load(&scope.at(2), time, time)?])
        };
        let label = scope.shape("label_emb.0.0.weight").map(|s| two("label_emb.0", s[0])).transpose()?;
        let mut channels = scope.need_shape("input_blocks.0.0.weight")?[2];
        let (mut inputs, mut results) = (Vec::new(), Vec::new());
        for i in (0..MAX_BLOCKS).filter(|i| scope.has_below(format!("input_blocks.{i}"))) {
            let block =
                Block::load(&scope.at(format!("input_blocks.{i}")), &mut channels, time, config.heads)?;
            inputs.push((i, block));
            results.push(channels);
        }
        let middle = scope
            .has_below("middle_block")
            .then(|| Block::load(&scope.at("middle_block"), &mut channels, time, config.heads))
            .transpose()?;
        Ok(Self { time: two("time_embed", width)?, label, inputs, middle, channels: results, last: channels })
    }

    /// Width of the sinusoids of time.
    pub fn model_channels(&self) -> usize {
        self.time[0].input()
    }

    /// Width of the time's embedding.
    fn time_width(&self) -> usize {
        self.time[0].output()
    }

    /// Width of the label vector, if one is wanted.
    pub fn label_width(&self) -> Option<usize> {
        self.label.as_ref().map(|l| l[0].input())
    }

    /// Channels of the input.
    pub fn input(&self) -> Option<usize> {
        self.inputs.first().and_then(|(_, block)| match block.modules.first() {
            Some(super::unet_blocks::Module::Conv(conv)) => Some(conv.input()),
            _ => None,
        })
    }

    /// Width of the text.
    pub fn context(&self) -> Option<usize> {
        self.inputs.iter().find_map(|(_, block)| block.context())
    }

    /// Conditions from sinusoids `[M, N]`, text `[C, L, N or 1]` and labels `[A, N or 1]` for `batch` maps.
    pub fn conditions<'g>(
        &self,
        ctx: &Ctx<'g>,
        time: Tensor<'g>,
        context: Tensor<'g>,
        y: Option<Tensor<'g>>,
        batch: usize,
    ) -> Result<Conditions<'g>> {
        let embed =
            |layers: &[Linear; 2], x| layers[1].forward(ctx, layers[0].forward_act(ctx, x, Act::Silu)?);
        let mut emb = embed(&self.time, time)?;
        if let (Some(label), Some(y)) = (&self.label, y) {
            emb = emb.add(embed(label, y)?)?;
        }
        let context = context.repeat([context.dim(0), context.dim(1), batch, 1])?;
        Ok(Conditions { time: emb.act(Act::Silu)?, context })
    }

    /// Results of all input blocks, then of the middle. `add` is added to the first block's result.
    pub fn forward<'g>(
        &self,
        ctx: &Ctx<'g>,
        x: Tensor<'g>,
        given: Conditions<'g>,
        add: Option<Map<'g>>,
    ) -> Result<(Vec<Map<'g>>, Map<'g>)> {
        let mut h = Map::from_planes(x)?;
        let mut results = Vec::with_capacity(self.inputs.len());
        for (i, block) in &self.inputs {
            h = block.forward(ctx, h, given)?;
            if let (0, Some(add)) = (*i, add) {
                h = h.add(add)?;
            }
            ctx.graph.cut(&format!("input_blocks.{i}"), h.tensor());
            results.push(h);
        }
        if let Some(middle) = &self.middle {
            h = middle.forward(ctx, h, given)?;
            ctx.graph.cut("middle_block", h.tensor());
        }
        Ok((results, h))
    }
}

/// A UNet.
#[derive(Debug)]
pub struct Unet {
    trunk: Trunk,
    /// With the block's number and whether it takes a map of the first half.
    outputs: Vec<(usize, bool, Block)>,
    norm: GroupNorm,
    out: Conv2d,
}

/// Residuals of a control net with their strength: one map for each input block, then the middle's.
pub type Control<'a, T> = (&'a [T], f32);

impl Unet {
    /// The network below `scope` (`model.diffusion_model`).
    pub fn load(scope: &Scope<'_>, config: &UnetConfig) -> Result<Self> {
        let trunk = Trunk::load(scope, *config)?;
        let (mut skips, mut channels) = (trunk.channels.clone(), trunk.last);
        let mut outputs = Vec::new();
        for i in (0..MAX_BLOCKS).filter(|i| scope.has_below(format!("output_blocks.{i}"))) {
            let scope = scope.at(format!("output_blocks.{i}"));
            let takes = Block::takes_skip(&scope);
            if takes {
                channels += skips.pop().ok_or_else(|| {
                    Error::Weights(format!("{}: more output blocks than input blocks", scope.prefix()))
                })?;
            }
            let block = Block::load(&scope, &mut channels, trunk.time_width(), config.heads)?;
            outputs.push((i, takes, block));
        }
        if !skips.is_empty() {
            return Err(Error::Weights(format!(
                "{}: {} input blocks have no output block",
                scope.prefix(),
                skips.len()
            )));
        }
        let out = scope.need_shape("out.2.weight")?[3];
        Ok(Self {
            trunk,
            outputs,
            norm: GroupNorm::load(&scope.at("out.0"), channels)?,
            out: Conv2d::load(&scope.at("out.2"), channels, out, 3)?,
        })
    }

    /// Width of the sinusoids of time.
    pub fn model_channels(&self) -> usize {
        self.trunk.model_channels()
    }

    /// Channels of the input, what is concatenated to the latent included.
    pub fn input_channels(&self) -> Option<usize> {
        self.trunk.input()
    }

    /// Channels of the output.
    pub fn output_channels(&self) -> usize {
        self.out.output()
    }

    /// Width of the text.
    pub fn context_width(&self) -> Option<usize> {
        self.trunk.context()
    }

    /// Width of the label vector, if the network wants one.
    pub fn label_width(&self) -> Option<usize> {
        self.trunk.label_width()
    }

    /// Number of residuals that a control net must give: one for each input block, and the middle's.
    pub fn control_count(&self) -> usize {
        self.trunk.channels.len() + 1
    }

    /// `x` `[W, H, C, N]`, sinusoids of the timesteps `[M, N]` (see [`timestep_embedding`]), text
    /// `[C, L, N or 1]`, labels `[A, N or 1]`; gives `[W, H, C, N]`.
    pub fn forward<'g>(
        &self,
        ctx: &Ctx<'g>,
        x: Tensor<'g>,
        time: Tensor<'g>,
        context: Tensor<'g>,
        y: Option<Tensor<'g>>,
        control: Option<Control<'_, Map<'g>>>,
    ) -> Result<Tensor<'g>> {
        let given = self.trunk.conditions(ctx, time, context, y, x.dim(3))?;
        let (mut skips, mut h) = self.trunk.forward(ctx, x, given, None)?;
        if let Some((maps, strength)) = control {
            if maps.len() != self.control_count() {
                return Err(Error::shape(
                    "control",
                    format!("{} residuals, {} were expected", maps.len(), self.control_count()),
                ));
            }
            for (skip, map) in skips.iter_mut().zip(maps) {
                *skip = skip.add(map.scale(strength)?)?;
            }
            h = h.add(maps[skips.len()].scale(strength)?)?;
        }
        for (i, takes, block) in &self.outputs {
            if *takes {
                // `load` counted: there are as many maps as blocks that take one.
                let skip = skips.pop().ok_or_else(|| Error::Internal("no map left to join".into()))?;
                h = h.concat(skip)?;
            }
            h = block.forward(ctx, h, given)?;
            ctx.graph.cut(&format!("output_blocks.{i}"), h.tensor());
        }
        self.out.forward(ctx, self.norm.forward(ctx, h, Act::Silu)?)?.planes()
    }
}

/// Inputs of one call of a UNet.
#[derive(Clone, Copy)]
pub struct UnetInput<'a> {
    /// Latent `[W, H, C, N]`.
    pub x: &'a HostTensor,
    /// One timestep for each of the batch, or one for all.
    pub timesteps: &'a [f32],
    /// Text `[C, L, N or 1]`.
    pub context: &'a HostTensor,
    /// Labels `[A, N or 1]`, for networks that want them.
    pub y: Option<&'a HostTensor>,
    /// Further channels `[W, H, C, N or 1]` after those of `x`.
    pub c_concat: Option<&'a HostTensor>,
    /// Residuals of a control net.
    pub control: Option<Control<'a, HostTensor>>,
}

/// A UNet with its weights.
pub struct UnetModel {
    runner: Runner,
    unet: Unet,
    outputs: Vec<HostTensor>,
}

impl UnetModel {
    /// The network below `prefix`; `fields` names the parameters that could supply it, for the message.
    pub fn load(
        index: &Index,
        policy: &TypePolicy,
        prefix: &str,
        config: &UnetConfig,
        fields: &str,
    ) -> Result<Self> {
        let loader = Loader::new(index, policy)?;
        let unet = Unet::load(&loader.scope(prefix), config)?;
        Ok(Self::new(loader.finish("diffusion model", fields)?, unet))
    }

    /// Around a network and its weights.
    pub fn new(part: Part, unet: Unet) -> Self {
        Self { runner: super::runner(part), unet, outputs: Vec::new() }
    }

    /// The network.
    pub fn unet(&self) -> &Unet {
        &self.unet
    }

    /// Weights and graph.
    pub fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// Computes the network: `[W, H, C, N]`.
    pub fn run(&mut self, env: &Env<'_>, input: &UnetInput<'_>) -> Result<HostTensor> {
        self.check(input)?;
        let n = input.x.dim(3);
        let times = spread(input.timesteps, n)?;
        let width = self.unet.model_channels();
        let time = HostTensor::new([width, n], timestep_embedding(&times, width, MAX_PERIOD))?;
        let (maps, strength) = input.control.unwrap_or((&[], 0.0));
        let names: Vec<String> = (0..maps.len()).map(|i| format!("control.{i}")).collect();
        let mut inputs = vec![
            ("x", Input::F32(input.x)),
            ("time", Input::F32(&time)),
            ("context", Input::F32(input.context)),
        ];
        inputs.extend(input.y.map(|y| ("y", Input::F32(y))));
        inputs.extend(input.c_concat.map(|c| ("c_concat", Input::F32(c))));
        inputs.extend(names.iter().zip(maps).map(|(name, map)| (name.as_str(), Input::F32(map))));
        let unet = &self.unet;
        let (has_y, has_concat) = (input.y.is_some(), input.c_concat.is_some());
        self.runner.run_into(env, strength.to_bits(), &inputs, &mut self.outputs, |ctx, t| {
            let mut rest = t[3..].iter().copied();
            let y = if has_y { rest.next() } else { None };
            let mut x = t[0];
            if let Some(more) = if has_concat { rest.next() } else { None } {
                let [w, h, c, _] = more.shape();
                x = x.concat(more.repeat([w, h, c, x.dim(3)])?, 2)?;
            }
            let maps: Vec<_> = rest.map(Map::from_planes).collect::<Result<_>>()?;
            let control = (!maps.is_empty()).then_some((maps.as_slice(), strength));
            Ok(vec![unet.forward(ctx, x, t[1], t[2], y, control)?])
        })?;
        self.outputs.pop().ok_or_else(|| Error::Internal("the network gave nothing".into()))
    }

    /// Takes back a result that is no longer needed, so that the next call needs no new memory.
    pub fn recycle(&mut self, output: HostTensor) {
        if self.outputs.is_empty() {
            self.outputs.push(output);
        }
    }

    fn check(&self, input: &UnetInput<'_>) -> Result<()> {
        let fail = |what: String| Err(Error::shape("unet", what));
        let found = input.x.dim(2) + input.c_concat.map_or(0, |c| c.dim(2));
        if let Some(want) = self.unet.input_channels().filter(|&want| want != found) {
            return fail(format!("{found} channels were given, {want} are wanted"));
        }
        let width = input.context.dim(0);
        if let Some(want) = self.unet.context_width().filter(|&want| want != width) {
            return fail(format!("a text of width {width} was given, {want} is wanted"));
        }
        match (self.unet.label_width(), input.y.map(|y| y.dim(0))) {
            (want, found) if want == found => Ok(()),
            (want, found) => fail(format!("labels of width {found:?} were given, {want:?} is wanted")),
        }
    }
}

/// `values` for a batch of `n`: as they are, or one for all.
pub(super) fn spread(values: &[f32], n: usize) -> Result<Vec<f32>> {
    match values {
        [one] => Ok(vec![*one; n]),
        many if many.len() == n => Ok(many.to_vec()),
        many => Err(Error::shape("timesteps", format!("{} for a batch of {n}", many.len()))),
    }
}
