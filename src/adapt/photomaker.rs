//! PhotoMaker: pictures of a person change the states of a class word in the prompt.
//!
//! Version 1 takes CLIP's view of the pictures, version 2 face embeddings too. A file of either also holds a LoRA.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use super::lora::{LoraFile, Targets};
use crate::error::{Error, Result};
use crate::files::ModelFile;
use crate::graph::{Act, Input, Tensor};
use crate::image::{Image, clip_preprocess, to_tensor, with_channels};
use crate::layer::{Ctx, Env, LayerNorm, Linear, Runner, attention};
use crate::net::clip_vision::{ClipVision, ClipVisionConfig, VisionOutput};
use crate::tensor::HostTensor;
use crate::weights::names::{DENOISER, Dialect, canonical};
use crate::weights::{Index, Loader, Scope, TypePolicy};

/// The word that marks the class word before it.
pub const TRIGGER: &str = "img";
/// Parameter of the file, for messages.
const FIELD: &str = "photo_maker_path";
/// Heads of the second version's attentions are this wide.
const HEAD: usize = 128;
/// Most values of a face embedding file.
const MAX_EMBEDDING: usize = 1 << 24;

/// Two layers with GELU between.
#[derive(Debug)]
struct Mlp([Linear; 2]);

impl Mlp {
    fn load(scope: &Scope<'_>) -> Result<Self> {
        let layer = |name: &str| {
            let [input, output, ..] = scope.need_shape(format!("{name}.weight"))?;
            Linear::load_any_bias(&scope.at(name), input, output)
        };
        Ok(Self([layer("fc1")?, layer("fc2")?]))
    }

    fn forward<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
        self.0[1].forward(ctx, self.0[0].forward_act(ctx, x, Act::Gelu)?)
    }
}

/// Joins states of the class word with identities.
#[derive(Debug)]
struct Fuse {
    norms: [LayerNorm; 3],
    mlps: [Mlp; 2],
}

impl Fuse {
    fn load(scope: &Scope<'_>) -> Result<Self> {
        let norm = |path: &str| {
            let width = scope.need_shape(format!("{path}.weight"))?[0];
            LayerNorm::load(&scope.at(path), width)
        };
        Ok(Self {
            norms: [norm("mlp1.layernorm")?, norm("mlp2.layernorm")?, norm("layer_norm")?],
            mlps: [Mlp::load(&scope.at("mlp1"))?, Mlp::load(&scope.at("mlp2"))?],
        })
    }

    /// States `[C, n]` and identities `[C, n]` to new states.
    fn forward<'g>(&self, ctx: &Ctx<'g>, states: Tensor<'g>, identities: Tensor<'g>) -> Result<Tensor<'g>> {
        let both = states.concat(identities, 0)?;
        let x = self.mlps[0].forward(ctx, self.norms[0].forward(ctx, both)?)?.add(states)?;
        let x = self.mlps[1].forward(ctx, self.norms[1].forward(ctx, x)?)?.add(x)?;
        self.norms[2].forward(ctx, x)
    }
}

/// Tokens that look at a picture and at themselves.
#[derive(Debug)]
struct Perceiver {
    attention: [Linear; 3],
    norms: [LayerNorm; 3],
    mlp: Mlp,
}

impl Perceiver {
    fn load(scope: &Scope<'_>, width: usize) -> Result<Self> {
        let linear = |name: &str| {
            let [input, output, ..] = scope.need_shape(format!("{name}.weight"))?;
            Linear::load_no_bias(&scope.at(name), input, output)
        };
        let norm = |name: &str| LayerNorm::load(&scope.at(name), width);
        Ok(Self {
            attention: [linear("0.to_q")?, linear("0.to_kv")?, linear("0.to_out")?],
            norms: [norm("0.norm1")?, norm("0.norm2")?, norm("1.0")?],
            mlp: Mlp::load(&scope.at("1.1"))?,
        })
    }

    /// Picture `[C, L, N]`, tokens `[C, T, N]`.
    fn forward<'g>(&self, ctx: &Ctx<'g>, picture: Tensor<'g>, tokens: Tensor<'g>) -> Result<Tensor<'g>> {
        let picture = self.norms[0].forward(ctx, picture)?;
        let own = self.norms[1].forward(ctx, tokens)?;
        let q = self.attention[0].forward(ctx, own)?;
        let kv = self.attention[1].forward(ctx, picture.concat(own, 1)?)?.chunks(0, 2)?;
        let seen = attention(q, kv[0].cont()?, kv[1].cont()?, (q.dim(0) / HEAD).max(1), None)?;
        let tokens = self.attention[2].forward(ctx, seen)?.add(tokens)?;
        self.mlp.forward(ctx, self.norms[2].forward(ctx, tokens)?)?.add(tokens)
    }
}

/// How a picture becomes identities.
#[derive(Debug)]
enum Identity {
    /// Two projections of CLIP's state of the whole picture.
    Projected(Box<[Linear; 2]>),
    /// Face embeddings that look at CLIP's states.
    Perceived(Box<Perceived>),
}

/// The layers of [`Identity::Perceived`].
#[derive(Debug)]
struct Perceived {
    tokens: Mlp,
    norm: LayerNorm,
    picture: Linear,
    layers: Vec<Perceiver>,
    out: Linear,
    end: LayerNorm,
}

impl Identity {
    fn load(scope: &Scope<'_>) -> Result<Self> {
        let linear = |scope: &Scope<'_>, name: &str| {
            let [input, output, ..] = scope.need_shape(format!("{name}.weight"))?;
            Linear::load_any_bias(&scope.at(name), input, output)
        };
        if !scope.has_below("qformer_perceiver") {
            let pair = [linear(scope, "visual_projection")?, linear(scope, "visual_projection_2")?];
            return Ok(Self::Projected(Box::new(pair)));
        }
        let former = scope.at("qformer_perceiver");
        let sampler = former.at("perceiver_resampler");
        let norm = |scope: &Scope<'_>, name: &str| {
            let width = scope.need_shape(format!("{name}.weight"))?[0];
            LayerNorm::load(&scope.at(name), width)
        };
        let width = former.need_shape("token_norm.weight")?[0];
        Ok(Self::Perceived(Box::new(Perceived {
            tokens: Mlp::load(&former.at("token_proj"))?,
            norm: norm(&former, "token_norm")?,
            picture: linear(&sampler, "proj_in")?,
            layers: (0..sampler.count("layers"))
                .map(|i| Perceiver::load(&sampler.at(format!("layers.{i}")), width))
                .collect::<Result<_>>()?,
            out: linear(&sampler, "proj_out")?,
            end: norm(&sampler, "norm_out")?,
        })))
    }

    /// Identities of one picture.
    fn count(&self) -> usize {
        match self {
            Self::Projected(_) => 1,
            Self::Perceived(p) => p.tokens.0[1].output() / self.width().max(1),
        }
    }

    /// Width of an identity.
    fn width(&self) -> usize {
        match self {
            Self::Projected(layers) => layers.iter().map(Linear::output).sum(),
            Self::Perceived(p) => p.out.input(),
        }
    }

    /// `[C, n]` from pixels `[S, S, 3, N]` and, where they are wanted, face embeddings `[E, N]`.
    fn forward<'g>(
        &self,
        ctx: &Ctx<'g>,
        vision: &ClipVision,
        pixels: Tensor<'g>,
        faces: Option<Tensor<'g>>,
    ) -> Result<Tensor<'g>> {
        match (self, faces) {
            (Self::Projected(pair), _) => {
                let [one, two] = &**pair;
                let state = vision.forward(ctx, pixels, VisionOutput::Pooled)?;
                one.forward(ctx, state)?.concat(two.forward(ctx, state)?, 0)
            }
            (Self::Perceived(p), Some(faces)) => {
                let states = vision.forward(ctx, pixels, VisionOutput::Hidden(1))?;
                let (width, n) = (self.width(), pixels.dim(3));
                let first = p.tokens.forward(ctx, faces)?.reshape([width, self.count(), n, 1])?;
                let first = p.norm.forward(ctx, first)?;
                let picture = p.picture.forward(ctx, states)?;
                let look = |tokens, layer: &Perceiver| layer.forward(ctx, picture, tokens);
                let last = p.layers.iter().try_fold(first, look)?;
                let last = p.end.forward(ctx, p.out.forward(ctx, last)?)?.add(first)?;
                last.reshape([width, self.count() * n, 1, 1])
            }
            _ => Err(Error::Internal("face embeddings are wanted and were not given".into())),
        }
    }
}

/// An identity encoder with its weights, and the LoRA of its file.
pub struct PhotoMaker {
    runner: Runner,
    vision: ClipVision,
    identity: Identity,
    fuse: Fuse,
    file: Arc<ModelFile>,
}

/// What a request gives about a person.
pub struct Person {
    /// Pixels `[S, S, 3, N]` as CLIP wants them.
    pixels: HostTensor,
    /// Face embeddings `[E, N]`.
    faces: Option<HostTensor>,
    /// Tokens that take the class word's place.
    pub tokens: usize,
}

/// The member of a PhotoMaker file without the prefix that some writers put before it.
fn member(name: &str) -> &str {
    name.strip_prefix("id_encoder.").unwrap_or(name)
}

impl PhotoMaker {
    /// The identity encoder in `path`; nothing is read yet.
    pub fn open(path: &Path, policy: &TypePolicy) -> Result<Self> {
        let file =
            Arc::new(ModelFile::open(path).map_err(|error| Error::Invalid(format!("{FIELD}: {error}")))?);
        let mut index = Index::default();
        index.add(file.clone(), |name| {
            let is_lora = name.starts_with("lora_weights.") || name.starts_with("unet.");
            let full = format!("pmid.{}", member(name));
            (!is_lora).then(|| canonical(&full, &Dialect::PLAIN).into_owned())
        });
        let loader = Loader::new(&index, policy)?;
        let scope = loader.scope("pmid");
        let vision = ClipVision::load(&scope, &ClipVisionConfig::OPENAI)?;
        let identity = Identity::load(&scope)?;
        let fuse = Fuse::load(&scope.at("fuse_module"))?;
        let part = loader.finish("identity encoder", FIELD)?;
        let capacity = part.tensors() * 16 + 4096;
        Ok(Self { runner: Runner::new(part, capacity), vision, identity, fuse, file })
    }

    /// Weights and graph.
    pub fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// Width of the text states it changes.
    pub fn width(&self) -> usize {
        self.identity.width()
    }

    /// The LoRA that belongs to it.
    pub fn lora(&self, targets: &Targets, dialect: &Dialect) -> LoraFile {
        let name = |name: &str| {
            let name = name.strip_prefix("lora_weights.").unwrap_or(name);
            name.starts_with("unet.").then(|| name.to_owned())
        };
        LoraFile::new(self.file.clone(), name, targets, dialect, DENOISER)
    }

    /// Prepares pictures, and the face embeddings in `embed` where this version wants them. The error says what is
    /// missing.
    pub fn person(&self, images: &[Image], embed: Option<&Path>) -> Result<Person> {
        if images.is_empty() {
            return Err(Error::invalid("pm_params.id_images is empty"));
        }
        let side = self.vision.image_size();
        let mut data = Vec::with_capacity(side * side * 3 * images.len());
        for image in images {
            let pixels = with_channels(&to_tensor(image, None)?, 3)?;
            data.append(&mut clip_preprocess(&pixels, [side; 2])?.data);
        }
        let faces = match (&self.identity, embed) {
            (Identity::Projected(_), _) => None,
            (Identity::Perceived(p), Some(path)) => {
                let faces = read_embedding(path)?;
                let (width, count) = (faces.dim(0), faces.dim(1));
                if width != p.tokens.0[0].input() || count != images.len() {
                    return Err(Error::file(
                        path,
                        format!(
                            "holds {count} face embeddings of {width} values, {} of {} are wanted for the pictures",
                            images.len(),
                            p.tokens.0[0].input()
                        ),
                    ));
                }
                Some(faces)
            }
            _ => return Err(Error::invalid("this PhotoMaker wants pm_params.id_embed_path")),
        };
        let tokens = self.identity.count() * images.len();
        Ok(Person { pixels: HostTensor::new([side, side, 3, images.len()], data)?, faces, tokens })
    }

    /// Changes the rows of `states` (`[C, L]`) at `places` for a person.
    pub fn fuse(
        &mut self,
        env: &Env<'_>,
        states: &mut HostTensor,
        places: &[usize],
        person: &Person,
    ) -> Result<()> {
        let width = states.dim(0);
        if width != self.width() || places.len() != person.tokens {
            return Err(Error::shape(
                "identity",
                format!(
                    "{} states of width {width}, {} of {} are wanted",
                    places.len(),
                    person.tokens,
                    self.width()
                ),
            ));
        }
        let row = |place: &usize| states.data.get(place * width..(place + 1) * width);
        let rows: Option<Vec<&[f32]>> = places.iter().map(row).collect();
        let rows = rows.ok_or_else(|| Error::shape("identity", format!("places {places:?}")))?;
        let class = HostTensor::new([width, places.len()], rows.concat())?;
        let mut inputs = vec![("pixels", Input::F32(&person.pixels)), ("class", Input::F32(&class))];
        inputs.extend(person.faces.as_ref().map(|faces| ("faces", Input::F32(faces))));
        let (vision, identity, fuse) = (&self.vision, &self.identity, &self.fuse);
        let env = Env { circular: [false; 2], ..*env };
        let outputs = self.runner.run(&env, (), &inputs, |ctx, t| {
            let identities = identity.forward(ctx, vision, t[0], t.get(2).copied())?;
            Ok(vec![fuse.forward(ctx, t[1], identities)?])
        })?;
        self.runner.rest();
        let new =
            outputs.first().ok_or_else(|| Error::Internal("the identity encoder gave nothing".into()))?;
        for (place, row) in places.iter().zip(new.data.chunks_exact(width)) {
            states.data[place * width..(place + 1) * width].copy_from_slice(row);
        }
        Ok(())
    }
}

/// Face embeddings `[E, N]`: number of axes, length of the name and type as i32 (0: f32), extents, name, values.
fn read_embedding(path: &Path) -> Result<HostTensor> {
    let bytes = std::fs::read(path).map_err(|error| Error::file(path, error.to_string()))?;
    let fail = |what: &str| Error::file(path, format!("is no face embedding file: {what}"));
    let number = |i: usize| {
        let raw = bytes.get(i * 4..i * 4 + 4).and_then(|raw| <[u8; 4]>::try_from(raw).ok());
        raw.map(i32::from_le_bytes)
            .and_then(|n| usize::try_from(n).ok())
            .ok_or_else(|| fail("a number is missing"))
    };
    let (axes, name, ty) = (number(0)?, number(1)?, number(2)?);
    if !(1..=4).contains(&axes) || ty != 0 {
        return Err(fail(&format!("{axes} axes of type {ty}, 1 to 4 of type 0 (f32) were expected")));
    }
    let shape = (0..axes).map(|i| number(3 + i)).collect::<Result<Vec<_>>>()?;
    let count =
        shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|&n| n > 0 && n <= MAX_EMBEDDING);
    let count = count.ok_or_else(|| fail(&format!("extents {shape:?}")))?;
    let start = (3 + axes) * 4 + name.min(bytes.len());
    let values = bytes.get(start..start + count * 4).ok_or_else(|| fail("values are missing"))?;
    let data =
        values.chunks_exact(4).map(|raw| f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]])).collect();
    HostTensor::new([shape[0], count / shape[0]], data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn face_embeddings_are_read_and_cut_files_refused() {
        let path = std::env::temp_dir().join(format!("face-{}.bin", std::process::id()));
        let numbers: [i32; 5] = [2, 3, 0, 2, 2];
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        bytes.extend(b"abc");
        bytes.extend([1.0f32, 2.0, 3.0, 4.0].iter().flat_map(|v| v.to_le_bytes()));
        std::fs::write(&path, &bytes).unwrap();
        let faces = read_embedding(&path).unwrap();
        assert_eq!((faces.shape, faces.data), (vec![2, 2], vec![1.0, 2.0, 3.0, 4.0]));
        for end in 0..bytes.len() {
            std::fs::write(&path, &bytes[..end]).unwrap();
            assert!(read_embedding(&path).is_err(), "{end}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
