//! A control net beside a UNet: from a picture to residuals, the picture encoded once.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::files::ModelFile;
use crate::image::{Resize, resize};
use crate::layer::{Env, Runner};
use crate::net::controlnet::ControlModel;
use crate::net::unet::{Unet, UnetConfig, UnetInput};
use crate::tensor::HostTensor;
use crate::weights::names::{Dialect, control};
use crate::weights::{Index, TypePolicy};

/// Parameter of the file, for messages.
const FIELD: &str = "control_net_path";
/// Pixels along each side of a latent pixel in a control net's picture.
const HINT_FACTOR: usize = 8;

/// A control net and what it made of its latest picture.
pub struct ControlHook {
    net: ControlModel,
    hint: Option<Hint>,
    residuals: Vec<HostTensor>,
}

/// An encoded picture.
struct Hint {
    /// The picture at the size it was encoded in.
    picture: HostTensor,
    /// Whether it wrapped around.
    circular: [bool; 2],
    /// The map it became.
    map: HostTensor,
}

impl ControlHook {
    /// The control net in `path` for `unet`; nothing is read yet.
    pub fn open(
        path: &Path,
        policy: &TypePolicy,
        dialect: &Dialect,
        config: &UnetConfig,
        unet: &Unet,
    ) -> Result<Self> {
        let file = ModelFile::open(path).map_err(|error| Error::Invalid(format!("{FIELD}: {error}")))?;
        let mut index = Index::default();
        index.add(Arc::new(file), |name| Some(control(name, dialect).into_owned()));
        let net = ControlModel::load(&index, policy, "", config, FIELD)?;
        let (found, wanted) = (net.net().context_width(), unet.context_width());
        let (count, places) = (net.net().count(), unet.control_count());
        if found != wanted || count != places {
            return Err(Error::Weights(format!(
                "{FIELD}: the control net is for another model: text of width {found:?} and {count} residuals, the \
                 model has {wanted:?} and {places}"
            )));
        }
        Ok(Self { net, hint: None, residuals: Vec::new() })
    }

    /// Weights and graph.
    pub fn runner(&mut self) -> &mut Runner {
        self.net.runner()
    }

    /// Residuals for the UNet that gets `input`. `picture` (`[W, H, 3, 1]`, 0 to 1) is scaled where a pass has
    /// another size.
    pub fn run(
        &mut self,
        env: &Env<'_>,
        input: &UnetInput<'_>,
        picture: &HostTensor,
    ) -> Result<&[HostTensor]> {
        let size = [input.x.dim(0) * HINT_FACTOR, input.x.dim(1) * HINT_FACTOR];
        let picture = resize(picture, size, Resize::Nearest, false)?;
        let known = self.hint.take().filter(|h| h.circular == env.circular && h.picture == picture);
        let hint = match known {
            Some(hint) => hint,
            None => {
                let map = self.net.encode_hint(env, &picture)?;
                Hint { picture, circular: env.circular, map }
            }
        };
        let result = self.net.run(env, input, &hint.map, &mut self.residuals);
        self.hint = Some(hint);
        result.map(|()| self.residuals.as_slice())
    }
}
