//! CLIP vision encoders (ViT).
#![forbid(unsafe_code)]

use super::clip::{ClipLayer, layers, layers_used};
use crate::error::{Error, Result};
use crate::graph::{Act, Tensor, Weight};
use crate::layer::{Conv2d, Ctx, Env, LayerNorm, Linear, Runner};
use crate::tensor::HostTensor;
use crate::weights::{Index, Loader, Part, Role, Scope, TypePolicy};

/// What no shape tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClipVisionConfig {
    /// Activation of the feed-forward layers.
    pub act: Act,
    /// Number of heads; 16 in all published encoders from L/14 on.
    pub heads: usize,
}

impl ClipVisionConfig {
    /// OpenAI's L/14.
    pub const OPENAI: Self = Self { act: Act::GeluQuick, heads: 16 };
    /// open_clip's H/14.
    pub const OPEN_CLIP: Self = Self { act: Act::Gelu, heads: 16 };
}

/// What a vision encoder is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VisionOutput {
    /// The state of the class token after the final norm, projected when there is a projection: `[P, N]`.
    Projected,
    /// The state of the class token after the final norm: `[width, N]`.
    Pooled,
    /// All states of the layer `clip_skip` from the end (1: last), before the final norm: `[width, L, N]`.
    Hidden(usize),
}

/// A CLIP vision encoder.
#[derive(Debug)]
pub struct ClipVision {
    patches: Conv2d,
    class: Weight,
    positions: Weight,
    norms: [LayerNorm; 2],
    layers: Vec<ClipLayer>,
    projection: Option<Linear>,
    image: usize,
}

impl ClipVision {
    /// The network below `scope`, in `vision_model` and `visual_projection`.
    pub fn load(scope: &Scope<'_>, config: &ClipVisionConfig) -> Result<Self> {
        let vision = scope.at("vision_model");
        let [patch, _, channels, width] = vision.need_shape("embeddings.patch_embedding.weight")?;
        let positions = vision.need_shape("embeddings.position_embedding.weight")?[1];
        let side = positions.saturating_sub(1).isqrt();
        if side == 0 || side * side + 1 != positions {
            return Err(Error::Weights(format!(
                "{}: {positions} positions are no square of patches and a class token",
                vision.prefix()
            )));
        }
        let patches = Conv2d::load(&vision.at("embeddings.patch_embedding"), channels, width, patch)?;
        let projection = scope
            .shape("visual_projection.weight")
            .map(|s| Linear::load_no_bias(&scope.at("visual_projection"), width, s[1]))
            .transpose()?;
        Ok(Self {
            patches: patches.with_stride(patch).with_pad([0; 4]),
            class: vision.weight("embeddings.class_embedding", &[width], Role::Vector)?,
            positions: vision.weight(
                "embeddings.position_embedding.weight",
                &[width, positions],
                Role::Vector,
            )?,
            norms: [
                LayerNorm::load(&vision.at("pre_layernorm"), width)?,
                LayerNorm::load(&vision.at("post_layernorm"), width)?,
            ],
            layers: layers(&vision, width, config.heads, config.act)?,
            projection,
            image: side * patch,
        })
    }

    /// Width and height of the pictures.
    pub fn image_size(&self) -> usize {
        self.image
    }

    /// Width of the states.
    pub fn width(&self) -> usize {
        self.patches.output()
    }

    /// Embeddings of the patches with the class token before them: `[width, L, N]`, not yet normalised.
    pub fn embed<'g>(&self, ctx: &Ctx<'g>, pixels: Tensor<'g>) -> Result<Tensor<'g>> {
        // A picture of another size would not meet its positions.
        let found = (pixels.dim(0), pixels.dim(1));
        if found != (self.image, self.image) {
            return Err(Error::shape(
                "vision encoder",
                format!("a picture of {found:?}, {} x {0} is wanted", self.image),
            ));
        }
        let patches = crate::layer::Map::from_planes(pixels)?;
        let patches = self.patches.forward(ctx, patches)?.tokens()?;
        let class = ctx.weight(&self.class).reshape([self.width(), 1, 1, 1])?;
        let class = class.repeat([self.width(), 1, patches.dim(2), 1])?;
        class.concat(patches, 1)?.add(ctx.weight(&self.positions))
    }

    /// Pixels `[S, S, 3, N]`, normalised as CLIP wants, to what is asked for.
    pub fn forward<'g>(&self, ctx: &Ctx<'g>, pixels: Tensor<'g>, what: VisionOutput) -> Result<Tensor<'g>> {
        let used = match what {
            VisionOutput::Hidden(skip) => layers_used(self.layers.len(), skip),
            _ => self.layers.len(),
        };
        let mut x = self.norms[0].forward(ctx, self.embed(ctx, pixels)?)?;
        for (i, layer) in self.layers.iter().enumerate().take(used) {
            x = layer.forward(ctx, x, None)?;
            ctx.graph.cut(&format!("layers.{i}"), x);
        }
        if let VisionOutput::Hidden(_) = what {
            return Ok(x);
        }
        let [width, _, n, _] = x.shape();
        let class = x.narrow(1, 0, 1)?.cont()?.reshape([width, n, 1, 1])?;
        let class = self.norms[1].forward(ctx, class)?;
        match &self.projection {
            Some(projection) if what == VisionOutput::Projected => projection.forward(ctx, class),
            _ => Ok(class),
        }
    }
}

/// A CLIP vision encoder with its weights.
pub struct ClipVisionModel {
    runner: Runner,
    vision: ClipVision,
}

impl ClipVisionModel {
    /// The network below `prefix`; `fields` names the parameters that could supply it, for the message.
    pub fn load(
        index: &Index,
        policy: &TypePolicy,
        prefix: &str,
        config: &ClipVisionConfig,
        fields: &str,
    ) -> Result<Self> {
        let loader = Loader::new(index, policy)?;
        let vision = ClipVision::load(&loader.scope(prefix), config)?;
        Ok(Self::new(loader.finish("vision encoder", fields)?, vision))
    }

    /// Around a network and its weights.
    pub fn new(part: Part, vision: ClipVision) -> Self {
        Self { runner: super::runner(part), vision }
    }

    /// The network.
    pub fn vision(&self) -> &ClipVision {
        &self.vision
    }

    /// Weights and graph.
    pub fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// Encodes pixels `[S, S, 3, N]`.
    pub fn run(&mut self, env: &Env<'_>, pixels: &HostTensor, what: VisionOutput) -> Result<HostTensor> {
        let vision = &self.vision;
        let inputs = [("pixels", crate::graph::Input::F32(pixels))];
        let outputs =
            self.runner.run(env, what, &inputs, |ctx, t| Ok(vec![vision.forward(ctx, t[0], what)?]))?;
        outputs.into_iter().next().ok_or_else(|| Error::Internal("the encoder gave nothing".into()))
    }
}
