//! Guidance: how the evaluations of one step become one prediction.
#![forbid(unsafe_code)]

mod adaptive;
mod classifier_free;
mod schedule;
mod skip_layer;

pub use adaptive::{AdaptiveGuidance, ApgParams};
pub use classifier_free::combine;
pub use schedule::GuidanceSchedule;
pub use skip_layer::SkipLayers;

/// Network outputs of one step, all of one length. `negative` is the negative prompt with the images of the
/// request, `image_negative` the negative prompt without them.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a> {
    /// With the prompt.
    pub positive: &'a [f32],
    /// With the negative prompt, where it was evaluated.
    pub negative: Option<&'a [f32]>,
    /// With the negative prompt and without reference images, where it was evaluated.
    pub image_negative: Option<&'a [f32]>,
}

/// Guidance scales of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scales {
    /// `txt_cfg`.
    pub text: f32,
    /// `img_cfg`.
    pub image: f32,
}

/// Which evaluations a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeededOutputs {
    /// The negative prompt.
    pub negative: bool,
    /// The negative prompt without reference images.
    pub image_negative: bool,
}

impl Scales {
    /// Settles the image scale of a request: infinite or unsupported by the model means 1, which is guidance
    /// by text alone. The second part is a warning for the log.
    pub fn resolve(text: f32, image: f32, supports_image: bool) -> (Self, Option<&'static str>) {
        if !image.is_finite() {
            return (Self { text, image: 1.0 }, None);
        }
        if supports_image || image == 1.0 {
            return (Self { text, image }, None);
        }
        (Self { text, image: 1.0 }, Some("img_cfg is ignored: this model has no guidance by images"))
    }

    /// Evaluations without which the result would be another.
    pub fn needs(self) -> NeededOutputs {
        NeededOutputs { negative: self.image != self.text, image_negative: self.image != 1.0 }
    }
}
