//! Choices a request may name, in the order and spelling of the C enums.
#![forbid(unsafe_code)]

use std::ffi::CStr;

macro_rules! choices {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),* }

        impl $name {
            /// All, in the order of the C enum.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Number in the C enum.
            pub fn index(self) -> usize {
                self as usize
            }

            /// By number in the C enum; out of range is `None`, which stands for the default.
            pub fn from_index(index: i32) -> Option<Self> {
                usize::try_from(index).ok().and_then(|i| Self::ALL.get(i).copied())
            }

            /// Its name, with the NUL that C wants.
            pub fn c_name(self) -> &'static CStr {
                match self { $(Self::$variant => $text),* }
            }

            /// Its name.
            pub fn name(self) -> &'static str {
                // The names above are ASCII.
                self.c_name().to_str().unwrap_or_default()
            }

            /// By name, exactly as spelled.
            pub fn from_name(name: &[u8]) -> Option<Self> {
                Self::ALL.iter().copied().find(|c| c.c_name().to_bytes() == name)
            }
        }
    };
}

choices! {
    /// Random generator.
    Rng {
        /// mt19937 and the normal distribution of the C++ library.
        Standard = c"std_default",
        /// Philox, as on CUDA devices.
        Cuda = c"cuda",
        /// mt19937 as torch uses it on a CPU.
        Cpu = c"cpu",
    }
}

choices! {
    /// Sampler.
    #[allow(missing_docs)]
    SampleMethod {
        Euler = c"euler",
        EulerA = c"euler_a",
        Heun = c"heun",
        Dpm2 = c"dpm2",
        Dpmpp2sA = c"dpm++2s_a",
        Dpmpp2m = c"dpm++2m",
        Dpmpp2mV2 = c"dpm++2mv2",
        Ipndm = c"ipndm",
        IpndmV = c"ipndm_v",
        Lcm = c"lcm",
        DdimTrailing = c"ddim_trailing",
        Tcd = c"tcd",
        ResMultistep = c"res_multistep",
        Res2s = c"res_2s",
        ErSde = c"er_sde",
        EulerCfgPp = c"euler_cfg_pp",
        EulerACfgPp = c"euler_a_cfg_pp",
        EulerGe = c"euler_ge",
        Dpmpp2mSde = c"dpm++2m_sde",
        Dpmpp2mSdeBt = c"dpm++2m_sde_bt",
    }
}

choices! {
    /// Noise schedule.
    #[allow(missing_docs)]
    Scheduler {
        Discrete = c"discrete",
        Karras = c"karras",
        Exponential = c"exponential",
        Ays = c"ays",
        Gits = c"gits",
        SgmUniform = c"sgm_uniform",
        Simple = c"simple",
        Smoothstep = c"smoothstep",
        KlOptimal = c"kl_optimal",
        Lcm = c"lcm",
        BongTangent = c"bong_tangent",
        Ltx2 = c"ltx2",
        LogitNormal = c"logit_normal",
        Flux2 = c"flux2",
        Flux = c"flux",
        Beta = c"beta",
    }
}

choices! {
    /// What the network predicts.
    Prediction {
        /// The noise.
        Eps = c"eps",
        /// Velocity of the variance-preserving process.
        V = c"v",
        /// Velocity with EDM scalings.
        EdmV = c"edm_v",
        /// Rectified flow over discrete time.
        Flow = c"sd3_flow",
        /// Rectified flow with a shift by sequence length.
        FluxFlow = c"flux_flow",
        /// Rectified flow with two times.
        SefiFlow = c"sefi_flow",
        /// Rectified flow that predicts the picture.
        Minit2iFlow = c"minit2i_flow",
    }
}

choices! {
    /// When LoRAs are applied.
    LoraApply {
        /// At run time when weights are quantised, else merged.
        Auto = c"auto",
        /// Merged into the weights.
        Immediately = c"immediately",
        /// Added while computing.
        AtRuntime = c"at_runtime",
    }
}

choices! {
    /// Upscaler between the passes of hires.
    HiresUpscaler {
        /// None: the latent must have the target's size already.
        None = c"None",
        /// Bilinear on the latent.
        Latent = c"Latent",
        /// Nearest on the latent.
        LatentNearest = c"Latent (nearest)",
        /// Nearest on the latent, pixel centres.
        LatentNearestExact = c"Latent (nearest-exact)",
        /// Bilinear on the latent, antialiased.
        LatentAntialiased = c"Latent (antialiased)",
        /// Bicubic on the latent.
        LatentBicubic = c"Latent (bicubic)",
        /// Bicubic on the latent, antialiased.
        LatentBicubicAntialiased = c"Latent (bicubic antialiased)",
        /// Lanczos on pixels.
        Lanczos = c"Lanczos",
        /// Nearest on pixels.
        Nearest = c"Nearest",
        /// An upscaling network on pixels.
        Model = c"Model",
    }
}

choices! {
    /// Latent format of a separate VAE file.
    VaeFormat {
        /// 16 channels with the scale and shift of the first flow models of that size.
        Flux = c"flux",
        /// 16 channels with the scale and shift of the MMDiT models.
        Sd3 = c"sd3",
        /// 32 channels, patched.
        Flux2 = c"flux2",
    }
}

choices! {
    /// Step cache.
    #[allow(missing_docs)]
    CacheMode {
        Disabled = c"disabled",
        EasyCache = c"easycache",
        UCache = c"ucache",
        DbCache = c"dbcache",
        TaylorSeer = c"taylorseer",
        CacheDit = c"cache_dit",
        Spectrum = c"spectrum",
    }
}
