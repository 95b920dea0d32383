//! A loaded model and its calls.
#![forbid(unsafe_code)]

use super::choice::{SampleMethod, Scheduler};
use super::exclusive::Exclusive;
use super::request::{ContextOptions, ImageRequest, VideoRequest};
use super::state::State;
use crate::cancel::{CancelFlag, CancelMode, CancelToken};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::report::Callbacks;
use std::sync::Arc;

/// What one call brings along besides its request.
pub struct Run<'a> {
    /// Whom to tell.
    pub callbacks: &'a Callbacks,
    /// Whether to go on.
    pub cancel: CancelToken,
}

/// Sound of a video.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sound {
    /// Samples a second.
    pub sample_rate: u32,
    /// Channels, interleaved.
    pub channels: u32,
    /// Values in -1..1; their count is a multiple of `channels`.
    pub samples: Vec<f32>,
}

/// Frames of a video and its sound, where the model makes one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Video {
    /// Frames in order.
    pub frames: Vec<Image>,
    /// Sound.
    pub sound: Option<Sound>,
}

/// What is known about a loaded model without touching it.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// It makes images.
    pub images: bool,
    /// It makes videos.
    pub videos: bool,
    /// Sampler when a request names none.
    pub method: SampleMethod,
    /// Schedule when a request names neither schedule nor a sampler with a schedule of its own.
    pub scheduler: Scheduler,
}

impl Facts {
    /// Schedule for `method` when a request names none: some samplers were made for one.
    pub fn scheduler_for(&self, method: Option<SampleMethod>) -> Scheduler {
        match Self::usual_scheduler(method) {
            // An EDM model's schedule goes before that of any sampler.
            _ if self.scheduler == Scheduler::Exponential => Scheduler::Exponential,
            Scheduler::Discrete => self.scheduler,
            own => own,
        }
    }

    /// The schedule a sampler was made for; the discrete one where it was made for none.
    pub fn usual_scheduler(method: Option<SampleMethod>) -> Scheduler {
        match method {
            Some(SampleMethod::Lcm | SampleMethod::Tcd) => Scheduler::Lcm,
            Some(SampleMethod::DdimTrailing) => Scheduler::Simple,
            _ => Scheduler::Discrete,
        }
    }
}

/// A loaded model. Calls from several threads are done one after the other.
pub struct Context {
    facts: Facts,
    cancel: Arc<CancelFlag>,
    state: Exclusive<State>,
}

impl Context {
    /// Finds out what the files are and prepares to use them.
    pub fn new(options: ContextOptions, callbacks: &Callbacks) -> Result<Self> {
        let (state, facts) = State::new(options, callbacks)?;
        Ok(Self { facts, cancel: Arc::default(), state: Exclusive::new(state) })
    }

    /// What is known about the model; never waits.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Requests a stop; never waits, from any thread or signal handler.
    pub fn request_cancel(&self, mode: CancelMode) {
        self.cancel.request(mode);
    }

    /// The requests to stop, as a call that enters now sees them.
    pub fn enter(&self) -> CancelToken {
        self.cancel.enter()
    }

    /// Makes images: `batch_count` of them, or fewer after [`CancelMode::NewLatents`].
    pub fn generate_image(&self, request: &ImageRequest, run: &Run<'_>) -> Result<Vec<Image>> {
        request.validate()?;
        self.state.run(|state| {
            // It may have been cancelled while it waited.
            run.cancel.check()?;
            state.generate_image(request, run)
        })
    }

    /// Makes a video.
    pub fn generate_video(&self, request: &VideoRequest, _run: &Run<'_>) -> Result<Video> {
        request.validate()?;
        self.state.run(|_state| Err(Error::invalid("generating videos is not available in this build")))
    }

    /// Waits until every call that has entered has left, unless the caller is inside one (in a callback).
    pub fn wait_idle(&self) {
        self.state.wait_idle();
    }
}
