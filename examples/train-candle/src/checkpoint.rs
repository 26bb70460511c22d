//! A checkpoint: the weights, and the loader's state, which belong together.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use spdl_client::State;

use crate::{Failure, net::Net};

/// A folder with the newest checkpoint.
pub(crate) struct Checkpoint {
    folder: PathBuf,
}

impl Checkpoint {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Returns where the loader was, or `None` without a checkpoint. It is the same for all ranks, and for any number of them.
    pub(crate) fn state(&self) -> Result<Option<State>, Failure> {
        match fs::read(self.newest().join("loader.json")) {
            Ok(bytes) => Ok(Some(State::from_bytes(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the weights, if there is a checkpoint.
    pub(crate) fn load(&self, net: &mut Net) -> Result<(), Failure> {
        let weights = self.newest().join("net.safetensors");
        if weights.exists() { Ok(net.load(&weights)?) } else { Ok(()) }
    }

    /// Writes both files into a new folder and then names it the newest, so that a crash leaves a whole checkpoint.
    pub(crate) fn save(&self, net: &Net, state: &State) -> Result<(), Failure> {
        let position = state.position();
        let name = format!("{}-{}", position.epoch, position.offset);
        let folder = self.folder.join(&name);
        fs::create_dir_all(&folder)?;
        net.save(&folder.join("net.safetensors"))?;
        fs::write(folder.join("loader.json"), state.to_bytes())?;
        let link = self.folder.join("newest.partial");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(name, &link)?;
        Ok(fs::rename(link, self.newest())?)
    }

    fn newest(&self) -> PathBuf {
        self.folder.join("newest")
    }
}
