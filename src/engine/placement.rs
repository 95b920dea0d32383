//! Where weights wait while their network is unused.
#![forbid(unsafe_code)]

use crate::log_warn;
use crate::report::Callbacks;

/// The networks that `params_backend` speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Module {
    TextEncoder,
    Diffusion,
    Vae,
}

impl Module {
    /// By the names that the parameter takes.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "te" | "text_encoder" | "clip" | "cond_stage" => Self::TextEncoder,
            "diffusion" | "diffusion_model" | "unet" => Self::Diffusion,
            "vae" | "first_stage" => Self::Vae,
            _ => return None,
        })
    }

    /// What a network of a model is, by the name of its part.
    pub(super) fn of_part(part: &str) -> Self {
        let text = ["text encoder", "T5", "CLIP"].iter().any(|word| part.contains(word));
        if text { Self::TextEncoder } else { Self::Diffusion }
    }
}

/// Which modules wait in their files: `disk` for all, `module=disk,...` for some. Elsewhere weights stay in the
/// memory of their device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Placement {
    all: bool,
    modules: Vec<Module>,
}

impl Placement {
    /// Reads `params_backend`; a module that is not known is said and left out.
    pub(super) fn parse(spec: Option<&str>, report: &Callbacks) -> Self {
        let mut placement = Self::default();
        for part in spec.unwrap_or_default().split(',').map(str::trim).filter(|p| !p.is_empty()) {
            match part.split_once('=').map(|(module, place)| (module.trim(), place.trim())) {
                None => placement.all = part.eq_ignore_ascii_case("disk"),
                Some(("*" | "all", place)) => placement.all = place.eq_ignore_ascii_case("disk"),
                Some((_, place)) if !place.eq_ignore_ascii_case("disk") => {}
                Some((name, _)) => match Module::named(name) {
                    Some(module) => placement.modules.push(module),
                    None => {
                        log_warn!(report, "params_backend: {name:?} is no module such as te, diffusion, vae")
                    }
                },
            }
        }
        placement
    }

    /// Whether the weights of `module` wait in their files.
    pub(super) fn on_disk(&self, module: Module) -> bool {
        self.all || self.modules.contains(&module)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_or_some_modules_wait_on_disk() {
        let parse = |spec| Placement::parse(Some(spec), &Callbacks::default());
        assert!(parse("disk").on_disk(Module::Vae));
        assert!(!parse("cpu").on_disk(Module::Vae));
        let some = parse("te=disk, diffusion=cpu,nothing=disk");
        assert!(some.on_disk(Module::of_part("text encoder")));
        assert!(!some.on_disk(Module::Diffusion) && !some.on_disk(Module::Vae));
    }
}
