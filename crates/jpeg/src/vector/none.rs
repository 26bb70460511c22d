//! For the processors whose vector instructions no kernel uses.

use crate::kernel::Portable;

impl Portable {
    /// Returns `None`.
    pub(crate) fn detect() -> Option<Self> {
        None
    }
}
