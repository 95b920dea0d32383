//! A loaded upscaling network.
#![forbid(unsafe_code)]

use std::time::Instant;

use parking_lot::Mutex;

use super::request::{UpscaleRequest, UpscalerOptions};
use super::state::{CallWatch, LoadProgress, choose_device};
use crate::cancel::CancelToken;
use crate::error::Result;
use crate::graph::{Device, Math};
use crate::image::{Image, Resize, from_tensor, resize, to_tensor, with_channels};
use crate::layer::Env;
use crate::log_info;
use crate::pipeline::upscale::TiledUpscaler;
use crate::report::Callbacks;
use crate::tensor::HostTensor;

/// Colours of a picture.
const COLOURS: usize = 3;

/// A loaded upscaling network. Calls from several threads are done one after the other.
pub struct Upscaler {
    factor: usize,
    device: Device,
    network: Mutex<TiledUpscaler>,
}

impl Upscaler {
    /// Loads the network.
    pub fn new(options: UpscalerOptions, callbacks: &Callbacks) -> Result<Self> {
        let network = TiledUpscaler::open(&options.path, options.tile_size, "esrgan_path")?;
        let device = choose_device(options.backend.as_deref(), "upscaler", options.n_threads)?;
        let upscaler = Self { factor: network.factor(), device, network: Mutex::new(network) };
        upscaler.with_env(callbacks, |env| upscaler.network.lock().runner().load(env))?;
        log_info!(callbacks, "upscaler of factor {} on {}", upscaler.factor, upscaler.device.name());
        Ok(upscaler)
    }

    /// Factor of the network.
    pub fn factor(&self) -> u32 {
        u32::try_from(self.factor).unwrap_or(u32::MAX)
    }

    /// Enlarges a picture by the network's factor. Colours come out as RGB; alpha is kept.
    pub fn upscale(&self, request: &UpscaleRequest, callbacks: &Callbacks) -> Result<Image> {
        let started = Instant::now();
        let image = &request.image;
        let size = [image.width, image.height].map(|side| side.saturating_mul(self.factor));
        let alpha = matches!(image.channels, 2 | 4);
        Image::byte_count(size[0], size[1], COLOURS + usize::from(alpha))?;
        log_info!(callbacks, "upscaling from {}x{} to {}x{}", image.width, image.height, size[0], size[1]);
        let pixels = to_tensor(image, None)?;
        let colours = with_channels(&pixels, COLOURS)?;
        let enlarged =
            self.with_env(callbacks, |env| self.network.lock().enlarge(env, &colours, Some(callbacks)))?;
        let result = if alpha { with_alpha(enlarged, &pixels, size)? } else { enlarged };
        log_info!(callbacks, "upscaled in {:.2}s", started.elapsed().as_secs_f32());
        from_tensor(&result, 0)
    }

    fn with_env<T>(&self, callbacks: &Callbacks, work: impl FnOnce(&Env<'_>) -> Result<T>) -> Result<T> {
        let cancel = CancelToken::none();
        let watch = CallWatch::new(&cancel, callbacks);
        let progress = LoadProgress::new(callbacks);
        let tell = |done, of| progress.tell(done, of);
        work(&Env {
            device: &self.device,
            math: Math { kernels: self.device.is_cpu(), ..Math::default() },
            circular: [false; 2],
            mmap: false,
            watch: &watch,
            cancel: &cancel,
            load_progress: &tell,
        })
    }
}

/// `colours` with the last channel of `pixels`, enlarged smoothly, behind them.
fn with_alpha(colours: HostTensor, pixels: &HostTensor, size: [usize; 2]) -> Result<HostTensor> {
    let count = pixels.dim(0) * pixels.dim(1);
    let plane = pixels.data[pixels.len() - count..].to_vec();
    let alpha = HostTensor::new([pixels.dim(0), pixels.dim(1), 1, 1], plane)?;
    let mut alpha = resize(&alpha, size, Resize::Bilinear, false)?;
    let mut data = colours.data;
    data.append(&mut alpha.data);
    HostTensor::new([size[0], size[1], COLOURS + 1, 1], data)
}
