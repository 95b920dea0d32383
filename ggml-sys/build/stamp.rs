//! Spares the compilation of ggml when the script runs again for another reason: `cc` compiles everything each time.

use crate::{Result, Target, variable};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, fs};

/// What an earlier run left in `OUT_DIR`, and what it must have been for that to serve.
pub struct Stamp {
    file: PathBuf,
    wanted: String,
}

impl Stamp {
    /// Everything that the archives depend on: source, target, compiler and this script.
    pub fn new(out: &Path, source: &Path, target: &Target) -> Result<Self> {
        let script = fs::metadata(env::current_exe()?)?.modified()?;
        let newest = newest(source)?;
        let compiler = compiler_variables();
        let wanted = format!("{source:?}\n{newest:?}\n{target:?}\n{compiler:?}\n{script:?}\n");
        Ok(Self { file: out.join("ggml.stamp"), wanted })
    }

    pub fn is_valid(&self) -> bool {
        fs::read_to_string(&self.file).is_ok_and(|found| found == self.wanted)
    }

    /// To be called before the archives change, so that an interrupted build is not taken for a finished one.
    pub fn clear(&self) -> Result<()> {
        if self.file.exists() {
            fs::remove_file(&self.file)?;
        }
        Ok(())
    }

    pub fn write(&self) -> Result<()> {
        Ok(fs::write(&self.file, &self.wanted)?)
    }
}

/// The time of the last change below a folder.
fn newest(folder: &Path) -> Result<SystemTime> {
    let mut newest = fs::metadata(folder)?.modified()?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let time = if entry.file_type()?.is_dir() {
            self::newest(&entry.path())?
        } else {
            entry.metadata()?.modified()?
        };
        newest = newest.max(time);
    }
    Ok(newest)
}

/// The variables that `cc` reads. It tells cargo about them only together with link lines, which are ours to write.
fn compiler_variables() -> Vec<Option<String>> {
    let target = env::var("TARGET").unwrap_or_default().replace('-', "_");
    ["CC", "CXX", "CFLAGS", "CXXFLAGS", "AR"]
        .iter()
        .flat_map(|name| [(*name).to_owned(), format!("{name}_{target}")])
        .map(|name| variable(&name))
        .collect()
}
