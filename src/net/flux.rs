//! Transformers of double and single blocks (Black Forest Labs 2024) and what descends from them.
//!
//! What a descendant has or leaves out is told by its names and shapes: modulations from a guidance network
//! instead of a layer in each block, or shared by all blocks; gated feed-forward layers; a patch convolution
//! and a decoder of pixels in place of the first and last layer; attention to an identity.
#![forbid(unsafe_code)]

use super::dit::{Embedder, Modulation, PatchOrder, pad_to_patch, patchify, unpatchify};
use super::flux_blocks::{DoubleBlock, IdentityAttention, Modulator, Shared, SingleBlock};
use super::flux_pixels::{Pixels, approximator::Approximator};
use crate::error::{Error, Result};
use crate::graph::{Act, Input, Tensor};
use crate::layer::{Ctx, Env, Linear, Pairs, RmsNorm, RopeAxis, RopeTable, Runner, timestep_embedding};
use crate::tensor::HostTensor;
use crate::weights::{Index, Loader, Scope, TypePolicy};

pub use super::flux_positions::Layout;

/// Width of the sinusoids of time and guidance.
const TIME_WIDTH: usize = 256;
/// Longest period of the sinusoids.
pub(super) const MAX_PERIOD: f32 = 10000.0;
/// Times are fed as 0 to 1 and multiplied by this.
pub(super) const TIME_FACTOR: f32 = 1000.0;

/// What no shape tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FluxConfig {
    /// Latent pixels along the sides of a token; unused where a patch convolution tells it.
    pub patch: usize,
    /// Axes of the rotary positions.
    pub axes: &'static [RopeAxis],
    /// Single and double blocks that the guidance network makes modulations for.
    pub slots: [usize; 2],
    /// Whether gated single blocks have the value before the gate.
    pub gate_last: bool,
    /// Width of a head of the attention to identities.
    pub identity_head: usize,
    /// Every so many double and single blocks attend to the identity.
    pub identity_every: [usize; 2],
}

/// What one evaluation takes.
#[derive(Clone, Debug)]
pub struct FluxInput<'a> {
    /// Latent `[W, H, C, 1]`.
    pub x: &'a HostTensor,
    /// Time, 0 to 1.
    pub t: f32,
    /// Text states `[C, L]`.
    pub context: &'a HostTensor,
    /// Pooled text.
    pub vector: Option<&'a HostTensor>,
    /// Guidance of distilled models.
    pub guidance: f32,
    /// Channels beside the latent `[W, H, C, 1]`.
    pub concat: Option<&'a HostTensor>,
    /// Latents of reference pictures.
    pub references: &'a [HostTensor],
    /// 0 or minus infinity for each text token.
    pub mask: Option<&'a [f32]>,
    /// Identity `[I, M]` and its weight.
    pub identity: Option<(&'a HostTensor, f32)>,
    /// Blocks to leave out: double ones first, then single ones.
    pub skip_layers: &'a [i32],
    /// Positions of text, picture and references.
    pub layout: Layout,
}

/// Where modulations come from.
// A few values, made once: boxes would gain nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
enum Conditioning {
    /// Each block has a layer for it, or all share one, on the sum of these embeddings.
    Vector { time: Embedder, vector: Option<Embedder>, guidance: Option<Embedder> },
    /// A network makes all of them.
    Network(Approximator),
}

/// First and last layers.
// A few values, made once: boxes would gain nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
enum Ends {
    Tokens { first: Linear, modulation: Option<Linear>, last: Linear },
    Pixels(Box<Pixels>),
}

/// The transformer.
#[derive(Debug)]
pub struct Flux {
    config: FluxConfig,
    conditioning: Conditioning,
    ends: Ends,
    text_norm: Option<RmsNorm>,
    text: Linear,
    doubles: Vec<DoubleBlock>,
    singles: Vec<SingleBlock>,
    /// Modulations of text, image and single blocks that all blocks share.
    shared: Option<[Modulator; 3]>,
    identity: Vec<IdentityAttention>,
}

/// The tensors of a graph's inputs, by name.
struct Given<'g, 'n> {
    names: &'n [String],
    tensors: &'n [Tensor<'g>],
}

impl<'g> Given<'g, '_> {
    fn maybe(&self, name: &str) -> Option<Tensor<'g>> {
        self.names.iter().position(|n| n == name).and_then(|i| self.tensors.get(i).copied())
    }

    fn get(&self, name: &str) -> Result<Tensor<'g>> {
        self.maybe(name).ok_or_else(|| Error::Internal(format!("the transformer was not given its {name}")))
    }

    /// All whose names start so.
    fn all(&self, prefix: &str) -> impl Iterator<Item = Tensor<'g>> {
        let of = self.names.iter().zip(self.tensors);
        of.filter(move |(n, _)| n.starts_with(prefix)).map(|(_, t)| *t).collect::<Vec<_>>().into_iter()
    }
}

/// The width of a head, from the scale of any norm of queries and keys.
fn head_width(scope: &Scope<'_>) -> Result<usize> {
    ["double_blocks.0.txt_attn.norm.key_norm", "single_blocks.0.norm.key_norm"]
        .iter()
        .flat_map(|norm| [format!("{norm}.scale"), format!("{norm}.weight")])
        .find_map(|name| scope.shape(name))
        .map(|shape| shape[0])
        .ok_or_else(|| {
            Error::Weights(format!("{}: no norm of keys tells the width of a head", scope.prefix()))
        })
}

impl Flux {
    /// The network below `scope` (`model.diffusion_model`).
    pub fn load(scope: &Scope<'_>, config: FluxConfig) -> Result<Self> {
        let [context, width, ..] = scope.need_shape("txt_in.weight")?;
        let head = head_width(scope)?;
        let turned: usize = config.axes.iter().map(|axis| axis.width).sum();
        if head != turned || !width.is_multiple_of(head) {
            return Err(Error::Weights(format!(
                "{}: heads of {head} in a width of {width}; the positions are made for heads of {turned}",
                scope.prefix()
            )));
        }
        let doubles = (0..scope.count("double_blocks"))
            .map(|i| DoubleBlock::load(&scope.at(format!("double_blocks.{i}")), width, head))
            .collect::<Result<Vec<_>>>()?;
        let singles = (0..scope.count("single_blocks"))
            .map(|i| {
                let scope = scope.at(format!("single_blocks.{i}"));
                SingleBlock::load(&scope, width, head, config.gate_last)
            })
            .collect::<Result<Vec<_>>>()?;
        let text_norm =
            scope.has("txt_norm.scale").then(|| RmsNorm::load(&scope.at("txt_norm"), "scale", context));
        Ok(Self {
            conditioning: Conditioning::load(scope, config, width)?,
            ends: Ends::load(scope, width)?,
            text_norm: text_norm.transpose()?,
            text: Linear::load_any_bias(&scope.at("txt_in"), context, width)?,
            shared: shared_modulators(scope, width)?,
            identity: identity(scope, config, width, [doubles.len(), singles.len()])?,
            doubles,
            singles,
            config,
        })
    }

    /// Channels of the latent.
    pub fn channels(&self) -> usize {
        match &self.ends {
            Ends::Tokens { last, .. } => last.output() / (self.config.patch * self.config.patch),
            Ends::Pixels(pixels) => pixels.channels(),
        }
    }

    /// Channels that go in, the latent's included.
    pub fn input_channels(&self) -> usize {
        match &self.ends {
            Ends::Tokens { first, .. } => first.input() / (self.config.patch * self.config.patch),
            Ends::Pixels(pixels) => pixels.channels(),
        }
    }

    /// Pixels of the latent along the sides of a token.
    pub fn patch(&self) -> usize {
        match &self.ends {
            Ends::Tokens { .. } => self.config.patch,
            Ends::Pixels(pixels) => pixels.patch(),
        }
    }

    /// Width of the text states.
    pub fn context_width(&self) -> usize {
        self.text.input()
    }

    /// Width of the pooled text.
    pub fn vector_width(&self) -> Option<usize> {
        match &self.conditioning {
            Conditioning::Vector { vector, .. } => vector.as_ref().map(Embedder::input),
            Conditioning::Network(_) => None,
        }
    }

    /// Whether it takes the guidance of distilled models.
    pub fn takes_guidance(&self) -> bool {
        matches!(&self.conditioning, Conditioning::Vector { guidance: Some(_), .. })
    }

    /// Width of an identity's vectors, where it attends to one.
    pub fn identity_width(&self) -> Option<usize> {
        self.identity.first().map(IdentityAttention::identity_width)
    }

    /// Tokens of picture and references, and the picture itself, padded.
    fn image<'g>(&self, ctx: &Ctx<'g>, given: &Given<'g, '_>) -> Result<(Tensor<'g>, Tensor<'g>)> {
        let patch = self.patch();
        let x = given.get("x")?;
        let beside = given.maybe("concat").map_or(Ok(x), |c| x.concat(c, 2))?;
        let padded = pad_to_patch(ctx, beside, patch)?;
        match &self.ends {
            Ends::Pixels(pixels) => Ok((pixels.tokens(ctx, padded)?, padded)),
            Ends::Tokens { first, .. } => {
                let mut tokens = patchify(padded, patch)?;
                for reference in given.all("reference") {
                    tokens = tokens.concat(patchify(pad_to_patch(ctx, reference, patch)?, patch)?, 1)?;
                }
                Ok((first.forward(ctx, tokens)?, padded))
            }
        }
    }

    fn forward<'g>(&self, ctx: &Ctx<'g>, given: &Given<'g, '_>, skip: &[i32]) -> Result<Tensor<'g>> {
        let x = given.get("x")?;
        let size = [x.dim(0), x.dim(1)];
        let (image, padded) = self.image(ctx, given)?;
        let mods = self.modulations(ctx, given)?;
        let mut text = given.get("context")?;
        if let Some(norm) = &self.text_norm {
            text = norm.forward(ctx, text)?;
        }
        let text = self.text.forward(ctx, text)?;
        ctx.graph.cut("prelude", image);
        let mask = match given.maybe("mask") {
            Some(mask) => Some(mask.pad([0; 4], [image.dim(1), 0, 0, 0])?),
            None => None,
        };
        let shared = Shared { rope: [given.get("cos")?, given.get("sin")?], mask, vector: mods.vector };
        let image = self.blocks(ctx, given, [text, image], &mods, (&shared, skip))?;
        let own = padded.dim(0) / self.patch() * (padded.dim(1) / self.patch());
        let image = image.narrow(1, 0, own)?;
        match &self.ends {
            Ends::Pixels(pixels) => {
                pixels.decode(ctx, (image, padded, x), given.get("dct")?, given.get("t")?)
            }
            Ends::Tokens { modulation, last, .. } => {
                let by = match (modulation, mods.vector, &mods.last) {
                    (Some(layer), Some(vector), _) => {
                        Modulation::of(&layer.forward(ctx, vector)?.chunks(0, 2)?)?
                    }
                    (_, _, Some(last)) => *last,
                    _ => return Err(Error::Internal("a last layer without modulation".into())),
                };
                let out = last.forward(ctx, by.apply(ctx, image)?)?;
                unpatchify(out, size, self.patch(), PatchOrder::ChannelsSlowest)
            }
        }
    }

    /// Double blocks, then single blocks; gives the picture's and the references' tokens.
    fn blocks<'g>(
        &self,
        ctx: &Ctx<'g>,
        given: &Given<'g, '_>,
        [mut text, mut image]: [Tensor<'g>; 2],
        mods: &Modulations<'g>,
        (shared, skip): (&Shared<'g>, &[i32]),
    ) -> Result<Tensor<'g>> {
        let skipped = |i: usize| skip.contains(&i32::try_from(i).unwrap_or(-1));
        let identity = given.maybe("identity").zip(given.maybe("identity_weight"));
        let mut attentions = self.identity.iter();
        for (i, block) in self.doubles.iter().enumerate().filter(|(i, _)| !skipped(*i)) {
            [text, image] = block.forward(ctx, [text, image], mods.double(i), shared)?;
            if let (true, Some((who, weight))) = (i % self.config.identity_every[0].max(1) == 0, identity)
                && let Some(attention) = attentions.next()
            {
                image = attention.forward(ctx, image, who, weight)?;
            }
            ctx.graph.cut(&format!("double_blocks.{i}"), image);
        }
        let (length, rest) = (text.dim(1), image.dim(1));
        let mut x = text.concat(image, 1)?;
        for (i, block) in self.singles.iter().enumerate().filter(|(i, _)| !skipped(i + self.doubles.len())) {
            x = block.forward(ctx, x, mods.single(i), shared)?;
            if let (true, Some((who, weight))) = (i % self.config.identity_every[1].max(1) == 0, identity)
                && let Some(attention) = attentions.next()
            {
                let image = attention.forward(ctx, x.narrow(1, length, rest)?, who, weight)?;
                x = x.narrow(1, 0, length)?.concat(image, 1)?;
            }
            ctx.graph.cut(&format!("single_blocks.{i}"), x);
        }
        x.narrow(1, length, rest)
    }

    fn modulations<'g>(&self, ctx: &Ctx<'g>, given: &Given<'g, '_>) -> Result<Modulations<'g>> {
        match &self.conditioning {
            Conditioning::Network(network) => {
                let vectors = network.forward(ctx, given.get("modulation")?)?;
                let counts = [self.singles.len(), self.doubles.len()];
                Modulations::from_network(vectors, self.config.slots, counts)
            }
            Conditioning::Vector { time, vector, guidance } => {
                let mut sum = time.forward(ctx, given.get("time")?)?;
                if let Some(guidance) = guidance {
                    sum = sum.add(guidance.forward(ctx, given.get("guidance")?)?)?;
                }
                if let Some(vector) = vector {
                    sum = sum.add(vector.forward(ctx, given.get("vector")?)?)?;
                }
                let active = sum.act(Act::Silu)?;
                let mut mods = Modulations { vector: Some(active), ..Modulations::default() };
                if let Some([text, image, single]) = &self.shared {
                    let pair = [text.forward(ctx, active)?, image.forward(ctx, active)?];
                    mods.doubles = vec![pair; self.doubles.len()];
                    mods.singles = vec![single.forward(ctx, active)?; self.singles.len()];
                }
                Ok(mods)
            }
        }
    }
}

impl Conditioning {
    fn load(scope: &Scope<'_>, config: FluxConfig, width: usize) -> Result<Self> {
        if scope.has_below("distilled_guidance_layer") {
            let scope = scope.at("distilled_guidance_layer");
            return Ok(Self::Network(Approximator::load(&scope, width, vector_count(config.slots))?));
        }
        let layers = ["in_layer", "out_layer"];
        let embedder = |name: &str, input: usize| Embedder::load(&scope.at(name), layers, input);
        let vector = scope.shape("vector_in.in_layer.weight");
        let guidance = scope.has("guidance_in.in_layer.weight");
        Ok(Self::Vector {
            time: embedder("time_in", TIME_WIDTH)?,
            vector: vector.map(|shape| embedder("vector_in", shape[0])).transpose()?,
            guidance: guidance.then(|| embedder("guidance_in", TIME_WIDTH)).transpose()?,
        })
    }
}

impl Ends {
    fn load(scope: &Scope<'_>, width: usize) -> Result<Self> {
        if scope.has("img_in_patch.weight") {
            return Ok(Self::Pixels(Box::new(Pixels::load(scope, width)?)));
        }
        let input = scope.need_shape("img_in.weight")?[0];
        let output = scope.need_shape("final_layer.linear.weight")?[1];
        let modulation = "final_layer.adaLN_modulation.1";
        let modulation = scope
            .has_below(modulation)
            .then(|| Linear::load_any_bias(&scope.at(modulation), width, 2 * width));
        Ok(Self::Tokens {
            first: Linear::load_any_bias(&scope.at("img_in"), input, width)?,
            modulation: modulation.transpose()?,
            last: Linear::load_any_bias(&scope.at("final_layer.linear"), width, output)?,
        })
    }
}

fn shared_modulators(scope: &Scope<'_>, width: usize) -> Result<Option<[Modulator; 3]>> {
    let load = |name: &str, sublayers: usize| Modulator::load(&scope.at(name), width, sublayers);
    let text = load("double_stream_modulation_txt", 2)?;
    let image = load("double_stream_modulation_img", 2)?;
    let single = load("single_stream_modulation", 1)?;
    Ok(match (text, image, single) {
        (Some(text), Some(image), Some(single)) => Some([text, image, single]),
        _ => None,
    })
}

/// The attentions to an identity, if the weights have them: as many as blocks use one.
fn identity(
    scope: &Scope<'_>,
    config: FluxConfig,
    width: usize,
    counts: [usize; 2],
) -> Result<Vec<IdentityAttention>> {
    if !scope.has_below("pulid_ca") {
        return Ok(Vec::new());
    }
    let used = |i: usize| counts[i].div_ceil(config.identity_every[i].max(1));
    (0..used(0) + used(1))
        .map(|i| IdentityAttention::load(&scope.at(format!("pulid_ca.{i}")), width, config.identity_head))
        .collect()
}

/// Vectors that the guidance network makes: three for a single block, six for each half of a double block, and
/// shift and scale of the last layer.
fn vector_count([singles, doubles]: [usize; 2]) -> usize {
    3 * singles + 12 * doubles + 2
}

/// Modulations of all blocks, where blocks do not make their own.
#[derive(Default)]
struct Modulations<'g> {
    vector: Option<Tensor<'g>>,
    /// Of text and image.
    doubles: Vec<[Vec<Modulation<'g>>; 2]>,
    singles: Vec<Vec<Modulation<'g>>>,
    last: Option<Modulation<'g>>,
}

impl<'g> Modulations<'g> {
    /// `vectors` `[C, n]`: single blocks, the image half of all double blocks, the text half, the last layer.
    fn from_network(vectors: Tensor<'g>, slots: [usize; 2], counts: [usize; 2]) -> Result<Self> {
        if counts[0] > slots[0] || counts[1] > slots[1] {
            return Err(Error::Weights(format!(
                "the guidance network serves {} single and {} double blocks, found {} and {}",
                slots[0], slots[1], counts[0], counts[1]
            )));
        }
        let of = |first: usize, n: usize| {
            let vectors = (first..first + n).map(|i| vectors.narrow(1, i, 1)).collect::<Result<Vec<_>>>()?;
            vectors.chunks(3).map(Modulation::of).collect::<Result<Vec<_>>>()
        };
        let image = 3 * slots[0];
        let text = image + 6 * slots[1];
        Ok(Self {
            vector: None,
            doubles: (0..counts[1])
                .map(|i| Ok([of(text + 6 * i, 6)?, of(image + 6 * i, 6)?]))
                .collect::<Result<_>>()?,
            singles: (0..counts[0]).map(|i| of(3 * i, 3)).collect::<Result<_>>()?,
            last: Some(of(vectors.dim(1) - 2, 2)?[0]),
        })
    }

    fn double(&self, i: usize) -> Option<[&[Modulation<'g>]; 2]> {
        self.doubles.get(i).map(|[text, image]| [text.as_slice(), image.as_slice()])
    }

    fn single(&self, i: usize) -> Option<&[Modulation<'g>]> {
        self.singles.get(i).map(Vec::as_slice)
    }
}

/// The transformer with its weights.
pub struct FluxModel {
    runner: Runner,
    net: Flux,
    /// The latest rotary table.
    table: Option<(Layout, RopeTable)>,
}

impl FluxModel {
    /// The network below `prefix`; `fields` names the parameters that could supply it, for the message.
    pub fn load(
        index: &Index,
        policy: &TypePolicy,
        prefix: &str,
        config: FluxConfig,
        fields: &str,
    ) -> Result<Self> {
        let loader = Loader::new(index, policy)?;
        let net = Flux::load(&loader.scope(prefix), config)?;
        let runner = super::runner(loader.finish("diffusion transformer", fields)?);
        Ok(Self { runner, net, table: None })
    }

    /// The network.
    pub fn net(&self) -> &Flux {
        &self.net
    }

    /// Weights and graph.
    pub fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// Evaluates the network; the result has the shape of the latent.
    pub fn run(&mut self, env: &Env<'_>, input: &FluxInput<'_>, out: &mut Vec<HostTensor>) -> Result<()> {
        self.check(input)?;
        if self.table.as_ref().is_none_or(|(layout, _)| *layout != input.layout) {
            let (positions, periods) = input.layout.positions();
            let axes = self.net.config.axes;
            let table = RopeTable::new(axes, Pairs::Neighbours, &positions, periods.as_deref())?;
            self.table = Some((input.layout.clone(), table));
        }
        let Some((_, table)) = &self.table else {
            return Err(Error::Internal("the rotary table is gone".into()));
        };
        let net = &self.net;
        let made = net.made_inputs(input)?;
        let mut inputs = vec![("x".to_owned(), input.x), ("context".to_owned(), input.context)];
        inputs.extend([("cos".to_owned(), &table.cos), ("sin".to_owned(), &table.sin)]);
        inputs.extend(made.iter().map(|(name, tensor)| ((*name).to_owned(), tensor)));
        inputs.extend(input.vector.map(|v| ("vector".to_owned(), v)));
        inputs.extend(input.concat.map(|c| ("concat".to_owned(), c)));
        inputs.extend(input.references.iter().enumerate().map(|(i, r)| (format!("reference.{i}"), r)));
        if input.skip_layers.is_empty() {
            inputs.extend(input.identity.map(|(who, _)| ("identity".to_owned(), who)));
        }
        let (names, tensors): (Vec<_>, Vec<_>) = inputs.into_iter().unzip();
        let inputs: Vec<_> = names.iter().zip(tensors).map(|(n, t)| (n.as_str(), Input::F32(t))).collect();
        self.runner.run_into(env, input.skip_layers, &inputs, out, |ctx, tensors| {
            Ok(vec![net.forward(ctx, &Given { names: &names, tensors }, input.skip_layers)?])
        })
    }

    fn check(&self, input: &FluxInput<'_>) -> Result<()> {
        let fail = |what: String| Err(Error::shape("transformer", what));
        let (found, wanted) = (input.context.dim(0), self.net.context_width());
        if found != wanted {
            return fail(format!("text states of width {found} were given, txt_in wants {wanted}"));
        }
        let found = input.x.dim(2) + input.concat.map_or(0, |c| c.dim(2));
        let wanted = self.net.input_channels();
        if found != wanted {
            return fail(format!("{found} channels were given, {wanted} are wanted"));
        }
        let (found, wanted) = (input.vector.map(|v| v.dim(0)), self.net.vector_width());
        if wanted.is_some() && found != wanted {
            return fail(format!("pooled text of width {found:?} was given, vector_in wants {wanted:?}"));
        }
        match (input.identity, self.net.identity_width()) {
            (Some((who, _)), wanted) if wanted != Some(who.dim(0)) => {
                fail(format!("an identity of width {} was given, {wanted:?} is wanted", who.dim(0)))
            }
            _ => Ok(()),
        }
    }
}

impl Flux {
    /// Inputs that are computed on the host from numbers.
    fn made_inputs(&self, input: &FluxInput<'_>) -> Result<Vec<(&'static str, HostTensor)>> {
        let embed = |value: f32| {
            HostTensor::new([TIME_WIDTH], timestep_embedding(&[value * TIME_FACTOR], TIME_WIDTH, MAX_PERIOD))
        };
        let mut made = Vec::new();
        match &self.conditioning {
            Conditioning::Network(network) => made.push(("modulation", network.input(input.t)?)),
            Conditioning::Vector { guidance, .. } => {
                made.push(("time", embed(input.t)?));
                if guidance.is_some() {
                    made.push(("guidance", embed(input.guidance)?));
                }
            }
        }
        if let Ends::Pixels(pixels) = &self.ends {
            made.push(("dct", pixels.cosines()?));
            made.push(("t", HostTensor::full([1], input.t)));
        }
        if let Some(mask) = input.mask {
            made.push(("mask", HostTensor::new([mask.len()], mask.to_vec())?));
        }
        if let (Some((_, weight)), true) = (input.identity, input.skip_layers.is_empty()) {
            made.push(("identity_weight", HostTensor::full([1], weight)));
        }
        Ok(made)
    }
}
