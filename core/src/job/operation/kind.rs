//! What an operation defines.

use serde::{Serialize, de::DeserializeOwned};

use crate::job::{KeyProblem, Size, check::MAX_SIDE};

/// An operation on a picture, as a job file describes it. Its geometry is in the worker's file of the same name.
pub trait Operation: Serialize + DeserializeOwned {
    /// Its name in a job file.
    const NAME: &'static str;
    /// The first release that knows it.
    const SINCE: &'static str;
    /// Its keys in a job file. The value of the first one may stand for all of them.
    const KEYS: &'static [&'static str];
    /// An example of its value in a job file, for errors.
    const EXAMPLE: &'static str;

    /// Returns the height and width after this step, given those before it (`None` if they differ from picture to
    /// picture).
    fn output_size(&self, before: Option<[u32; 2]>) -> Option<[u32; 2]>;

    /// Returns the field of the record that the step reads, besides the picture's.
    fn field(&self) -> Option<&str> {
        None
    }

    /// Checks the values of its keys.
    ///
    /// # Errors
    /// The key that is wrong, and what is wrong with it.
    fn check(&self) -> Result<(), KeyProblem> {
        Ok(())
    }
}

/// Checks the size of an operation's result.
pub(super) fn check_size(size: Size) -> Result<(), KeyProblem> {
    let size = size.height_width();
    if size.iter().any(|side| !(1..=MAX_SIDE).contains(side)) {
        return Err(("size", format!("is {size:?} pixels, not in 1..={MAX_SIDE}")));
    }
    Ok(())
}
